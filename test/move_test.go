//go:build soak

package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// TestMoveAMillion: a bucket with a million jobs joins a pool while a producer and a dispatcher with the
// configuration of before run. The producer answers 503 and when to come again, the dispatcher sends nothing, no
// script takes more than 5 ms, and a dispatcher with the new configuration goes on where they stopped.
func TestMoveAMillion(t *testing.T) {
	const rate, jobs = 200, 1_000_000
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		var a arrivalLog
		server := redistest.Start(t)
		s := start(t, server, plan{rate: rate, dispatchers: 1, capacity: 2_000_000, respond: a.respond})
		b := pacedBucket(rate)
		b.Worker, b.MaxInFlight, b.DedupeWindow = "webhook", 4000, shaper.DefaultBucket().DedupeWindow // as the configuration says
		fillBucket(t, server.Client(), b, jobs, s.history)
		logSlow(t, server)
		await(t, 10*time.Second, "jobs leave", func() bool { return len(a.all()) > rate })

		moved := s.rewritten("moved.toml", "[[buckets]]", "[[pools]]\nname = \"vendor\"\nrate = \"1000/s\"\n[[buckets]]", "capacity =", "pool = \"vendor\"\ncapacity =")
		command(t, 0, "dispatcher", "bucket", "pause", bucketName, "--config", moved)
		if out := command(t, 0, "dispatcher", "bucket", "list", "--config", moved); !strings.Contains(out, "run dispatcher bucket move "+bucketName) {
			t.Errorf("the list does not say what to do:\n%s", out)
		}
		var refused, admitted atomic.Int64
		done, posted := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(posted)
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				switch status, answer := s.request(http.MethodPost, "/v1/buckets/"+bucketName+"/jobs", "application/json", strings.NewReader(`{"payload":{}}`)); {
				case status == http.StatusAccepted:
					admitted.Add(1)
				case status == http.StatusServiceUnavailable && strings.Contains(string(answer), `"retry_after":1`):
					refused.Add(1)
				default:
					t.Errorf("%d %s", status, answer)
				}
				select {
				case <-done:
					return
				case <-tick.C:
				}
			}
		}()
		began := time.Now()
		out := command(t, 0, "dispatcher", "bucket", "move", bucketName, "--yes", "--json", "--config", moved)
		took := time.Since(began)
		close(done)
		<-posted
		var view struct{ Jobs, Entries int64 }
		if err := json.Unmarshal([]byte(out), &view); err != nil {
			t.Fatal(err)
		}
		left := len(a.all())
		t.Logf("%d jobs, %d entries in %s; meanwhile %d posts got in, and %d did not", view.Jobs, view.Entries, took.Round(time.Millisecond), admitted.Load(), refused.Load())
		body := "tundish:{vendor}:b:" + bucketName + ":body"
		if n := s.inspector.HLen(t.Context(), body).Val(); n != view.Jobs || n+int64(left) != jobs+admitted.Load() || s.unfinished() != 0 {
			t.Fatalf("%d are there and %d have left, of %d and %d", n, left, jobs, admitted.Load())
		}
		if refused.Load() == 0 {
			t.Error("nobody was refused")
		}
		run(t, s.ops, "dispatcher", "run", "--config", moved)
		command(t, 0, "dispatcher", "bucket", "resume", bucketName, "--config", moved)
		await(t, 20*time.Second, "deliveries go on", func() bool { return len(a.all()) > left+rate })
		r := s.history.Check()
		if r.Extra > 0 {
			t.Errorf("%d came twice", r.Extra)
		}
		return slowScripts(t, server, stall)
	})
}
