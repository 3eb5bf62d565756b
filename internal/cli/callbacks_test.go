package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// Whole jobs of a file name where their outcome is told; the bucket that delivers callbacks judges the address.
func TestCallbacksOfAnImport(t *testing.T) {
	t.Parallel()
	p := newPlan(t, "embedded", "rate = \"200/s\"\n[buckets.webhook]\nallow_networks = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n"+
		"[buckets.callbacks]\nbucket = \"told\"\norigins = [\"*\"]\n[[buckets]]\nname = \"told\"\nrate = \"200/s\"")
	receives, hears := receive(t), receive(t)
	daemon := start(t, p.env, "dispatcher run")
	daemon.ready(t, p.ops)
	daemon.ready(t, p.api)
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	jobs := strings.NewReplacer("RECEIVES", receives.URL, "HEARS", hears.URL).Replace(
		`{"id":"a","payload":1,"url":"RECEIVES","callback_url":"HEARS"}
{"id":"quiet","payload":2,"url":"RECEIVES"}
{"id":"inside","payload":3,"url":"RECEIVES","callback_url":"http://10.1.2.3/"}
{"id":"user","payload":4,"url":"RECEIVES","failure_url":"http://hunter2@example.com/"}
`)
	must.OK(t, os.WriteFile(file, []byte(jobs), 0o600))
	runArgs(t.Context(), p.env, "", "producer", "import", "webhooks", file).want(t, 1)
	eventually(t, "the outcome is told", func() bool { return hears.count() == 1 && receives.count() == 2 })
	if got := hears.bodies[0]; !strings.Contains(got, `"type":"job.done"`) || !strings.Contains(got, `"id":"a"`) {
		t.Errorf("told %s", got)
	}
	rejects, err := os.ReadFile(file + ".rejects.ndjson")
	if text := string(rejects); err != nil || !strings.Contains(text, "10.1.2.3") || !strings.Contains(text, "callback_url: the address") || !strings.Contains(text, "failure_url: holds user information") {
		t.Errorf("rejected %s, %v", text, err)
	}
	// Of a bundle it judges the address alike, in the servers and in a command that goes to Redis.
	command(t.Context(), p.env, "", "dispatcher bundle open webhooks a --callback-url "+hears.URL).want(t, 0)
	command(t.Context(), p.env, "", "dispatcher bundle open webhooks a --size 0").want(t, 2, "--size 0: want 1 or more")
	for _, server := range []string{"", " --server http://" + p.ops, " --server http://" + p.api} {
		command(t.Context(), p.env, "", "dispatcher bundle open webhooks a --callback-url http://10.1.2.3/"+server).want(t, 2, "callback_url: the address")
	}
	runArgs(t.Context(), p.env, "", "dispatcher", "bucket", "show", "webhooks", "--json").want(t, 0, `"unfinished": 0`)
	must.Equal(t, daemon.end(), 0, "the exit code is")
}
