package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// rewrite changes the configuration file, by putting another one in its place.
func (p plan) rewrite(t *testing.T, change func(text string) string) {
	t.Helper()
	path := strings.TrimPrefix(p.env[0], "TUNDISH_CONFIG=")
	text := must.Get(os.ReadFile(path))(t)
	next := filepath.Join(t.TempDir(), "next.toml")
	must.OK(t, os.WriteFile(next, []byte(change(string(text))), 0o600))
	must.OK(t, os.Rename(next, path))
}

// TestDaemonsFollowTheirFile changes the file under daemons that run.
func TestDaemonsFollowTheirFile(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), `rate = "1/h"`)
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	producer.ready(t, p.api)
	dispatcher.ready(t, p.ops)
	to := receive(t)
	command(t.Context(), p.env, "1\n2\n3\n", "producer send webhooks --url "+to.URL).want(t, 0, "3 jobs in")

	p.rewrite(t, func(text string) string { return strings.Replace(text, `"1/h"`, `"oops"`, 1) })
	for _, daemon := range []*running{producer, dispatcher} {
		eventually(t, "refused", func() bool {
			return daemon.said("the old one stays in force") && daemon.said(`buckets[0] \"webhooks\".rate: \"oops\"`)
		})
	}
	must.Equal(t, to.count(), 0, "jobs left at 1/h")
	p.rewrite(t, func(text string) string { return strings.Replace(text, `"oops"`, `"100/s"`, 1) })
	for _, daemon := range []*running{producer, dispatcher} {
		eventually(t, "applied", func() bool { return daemon.said("configuration reloaded") })
	}
	command(t.Context(), p.env, "", "producer send webhooks 4 --url "+to.URL).want(t, 0, "queued")
	eventually(t, "the new rate holds", func() bool { return to.count() == 4 })
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}

// newKey makes a key and returns its secret and its table.
func newKey(t *testing.T, words string) (secret, table string) {
	t.Helper()
	var view struct{ Secret, TOML string }
	r := command(t.Context(), nil, "", "producer key new "+words+" --json")
	if err := json.Unmarshal([]byte(r.out), &view); err != nil {
		t.Fatal(r, err)
	}
	return view.Secret, view.TOML
}

func TestDaemonWithKeys(t *testing.T) {
	t.Parallel()
	p := newPlan(t, "embedded", `rate = "200/s"`)
	secret, table := newKey(t, "billing --role enqueue --bucket webhooks")
	other, otherTable := newKey(t, "gateway --role check")
	p.rewrite(t, func(text string) string { return text + table + otherTable })
	daemon := start(t, p.env, "dispatcher run")
	daemon.ready(t, p.api)
	to := receive(t)
	send := "producer send webhooks 1 --url " + to.URL

	command(t.Context(), p.env, "", send).want(t, 2, "unauthorized", "TUNDISH_KEY")
	command(t.Context(), p.env, "1\n2\n", "producer send webhooks --key tdk_wrong").want(t, 2, "line 1: unauthorized")
	command(t.Context(), append(p.env, "TUNDISH_KEY="+other), "", send).want(t, 2, "forbidden", "enqueue")
	command(t.Context(), append(p.env, "TUNDISH_KEY="+secret), "", send).want(t, 0, "queued")
	command(t.Context(), p.env, "", send+" --key "+secret).want(t, 0, "queued")
	command(t.Context(), append(p.env, "TUNDISH_KEY="+secret), "", "producer load webhooks --jobs 4 --batch 2 --priority critical --url "+to.URL).
		want(t, 0, "admitted")
	eventually(t, "all are delivered", func() bool { return to.count() == 6 })
	for addr, want := range map[string]int{p.api: http.StatusUnauthorized, p.ops: http.StatusUnauthorized} {
		must.Equal(t, status(t, addr, "/metrics"), want, "/metrics on %s without a key answers", addr)
	}
	p.rewrite(t, func(text string) string { return strings.Replace(text, table, "", 1) })
	eventually(t, "the key is taken away", func() bool { return daemon.said(`"changed":"keys \"billing\""`) })
	command(t.Context(), p.env, "", send+" --key "+secret).want(t, 2, "unauthorized")
	if code := daemon.end(); code != 0 || daemon.said(secret) || daemon.said(other) {
		t.Errorf("the exit code is %d, or a secret is in the log", code)
	}
}
