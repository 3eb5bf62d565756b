package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// mailsTable is a bucket in a pool that no other bucket is in.
func mailsTable(url string) string {
	return fmt.Sprintf(`
[[pools]]
name = "vendor"
rate = "300/s"
[[buckets]]
name = "mails"
rate = "200/s"
pool = "vendor"
[buckets.webhook]
url = %q
allow_networks = ["127.0.0.0/8"]
`, url)
}

// applied waits until a daemon has applied so many changes.
func applied(t *testing.T, n int, daemons ...*running) {
	t.Helper()
	for _, daemon := range daemons {
		eventually(t, fmt.Sprint(n, " changes are applied"), func() bool {
			daemon.mu.Lock()
			defer daemon.mu.Unlock()
			return strings.Count(daemon.log.String(), "configuration reloaded") >= n
		})
	}
}

// A bucket in a new pool, a hook and another URL work after a reload. A bucket that left takes no jobs, is not drained, and is shown.
func TestDaemonsFollowBucketsAndHooks(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), `rate = "200/s"`)
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	producer.ready(t, p.api)
	dispatcher.ready(t, p.ops)
	first, second := receive(t), receive(t)
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer gone.Close()

	command(t.Context(), p.env, "", "producer send mails 1").want(t, 4, "unknown-bucket")
	p.rewrite(t, func(text string) string { return text + mailsTable(first.URL) })
	applied(t, 1, producer, dispatcher)
	command(t.Context(), p.env, "", "producer send mails 1").want(t, 0, "queued")
	eventually(t, "the new bucket is drained", func() bool { return first.count() == 1 })
	command(t.Context(), p.env, "", "dispatcher pool show vendor").want(t, 0, "mails: weight 1")

	hook := fmt.Sprintf("[[hooks]]\nevents = [\"job.dead\"]\nbucket = \"webhooks\"\nurl = %q\n", first.URL)
	p.rewrite(t, func(text string) string { return strings.Replace(text, first.URL, second.URL, 1) + hook })
	applied(t, 2, producer, dispatcher)
	command(t.Context(), p.env, "", "producer send mails 2").want(t, 0, "queued")
	eventually(t, "the new URL is used", func() bool { return second.count() == 1 })
	command(t.Context(), p.env, "", "producer send mails 3 --id dies --url "+gone.URL).want(t, 0, "queued")
	eventually(t, "the new hook is told", func() bool { return first.count() == 2 })
	first.mu.Lock()
	if told := first.bodies[1]; !strings.Contains(told, `"job.dead"`) || !strings.Contains(told, `"job":"dies"`) {
		t.Errorf("the hook was told %s", told)
	}
	first.mu.Unlock()

	p.rewrite(t, func(text string) string {
		kept, _, _ := strings.Cut(text, "\n[[pools]]")
		return kept
	})
	applied(t, 3, producer, dispatcher)
	command(t.Context(), p.env, "", "producer send mails 4").want(t, 4, "unknown-bucket")
	command(t.Context(), p.env, "", "dispatcher bucket list").want(t, 0, "mails", "not by the configuration here, as is normal for a bucket of a Go program: its last job left ")
	var view struct{ Orphaned bool }
	response, err := http.Get("http://" + p.ops + "/v1/buckets/mails")
	must.OK(t, err)
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&view); err != nil || !view.Orphaned {
		t.Errorf("%+v, %v", view, err)
	}
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}

// A worker that cannot be made has the whole reload refused: a timeout longer than the lease of the process that runs.
func TestReloadThatAWorkerRefuses(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), `rate = "1/h"`)
	dispatcher := start(t, p.env, "dispatcher run")
	dispatcher.ready(t, p.ops)
	p.rewrite(t, func(text string) string {
		text = strings.Replace(text, "[dispatcher]\n", "[dispatcher]\nlease = \"1m\"\n", 1)
		return strings.Replace(text, `"1/h"`, `"7/h"`, 1) + "timeout = \"50s\"\n" + mailsTable("http://127.0.0.1:1/")
	})
	eventually(t, "refused", func() bool {
		return dispatcher.said("the old one stays in force") && dispatcher.said(`bucket \"webhooks\": timeout 50s: want at most dispatcher.lease, which is 30s until the dispatcher restarts`)
	})
	response, err := http.Get("http://" + p.ops + "/v1/buckets/mails")
	must.OK(t, err)
	response.Body.Close()
	must.Equal(t, response.StatusCode, http.StatusNotFound, "a bucket of the refused configuration answers")
	command(t.Context(), p.env, "", "dispatcher bucket list").want(t, 0, "differs") // in force is still 1/h
	p.rewrite(t, func(text string) string {
		return strings.Replace(text, "timeout = \"50s\"\n", "timeout = \"20s\"\n", 1)
	})
	applied(t, 1, dispatcher)
	eventually(t, "it is said that the lease waits for a restart", func() bool { return dispatcher.said(`"keys":"dispatcher.lease"`) })
	must.Equal(t, dispatcher.end(), 0, "the exit code is")
}

// While Redis is away a bucket may come, and works when Redis is back. A dispatcher changes the pool of none.
func TestReloadWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newPlan(t, server.URL(), `rate = "200/s"`)
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	producer.ready(t, p.api)
	dispatcher.ready(t, p.ops)
	to := receive(t)
	server.Kill()
	p.rewrite(t, func(text string) string {
		return strings.Replace(text, "name = \"webhooks\"\n", "name = \"webhooks\"\npool = \"vendor\"\n", 1) + mailsTable(to.URL)
	})
	eventually(t, "refused", func() bool {
		return dispatcher.said("is not known while Redis does not answer: send SIGHUP when it does")
	})
	applied(t, 1, producer) // it goes to where the bucket is, and moves none
	p.rewrite(t, func(text string) string {
		return strings.Replace(text, "name = \"webhooks\"\npool = \"vendor\"\n", "name = \"webhooks\"\n", 1)
	})
	applied(t, 1, dispatcher)
	applied(t, 2, producer)
	must.OK(t, server.Restart())
	eventually(t, "the new bucket takes jobs", func() bool { return command(t.Context(), p.env, "", "producer send mails 1 --id one").code == 0 })
	eventually(t, "and is drained", func() bool { return to.count() == 1 })
	p.rewrite(t, func(text string) string {
		return strings.Replace(text, "name = \"webhooks\"\n", "name = \"webhooks\"\npool = \"vendor\"\n", 1)
	})
	applied(t, 2, dispatcher)
	applied(t, 3, producer)
	command(t.Context(), p.env, "", "producer send webhooks 1 --url "+to.URL).want(t, 0, "queued")
	eventually(t, "drained in its pool", func() bool { return to.count() == 2 })
	command(t.Context(), p.env, "", "dispatcher pool show vendor").want(t, 0, "mails: weight 1", "webhooks: weight 1")
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}
