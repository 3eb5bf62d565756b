package webhook

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/nginxtest"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// nginx ends a connection of HTTP/2 after keepalive_requests by a GOAWAY. What it has not processed by then costs no attempt, and no job
// arrives twice.
func TestNginxRetiresConnections(t *testing.T) {
	t.Parallel()
	files := redistest.NewCertificates(t)
	server := nginxtest.Start(t, files, "keepalive_requests 50; location / { return 204; }")
	const jobs, senders = 1500, 16
	w := newWorker(t, func(c *Config) { c.TLS, c.Concurrency = outgoing.TLS{CA: files.CA}, senders })
	var next, unprocessed atomic.Int64
	failed := make(chan shaper.Outcome, senders)
	var sending sync.WaitGroup
	for range senders {
		sending.Go(func() {
			for n := next.Add(1); n <= jobs && len(failed) == 0; n = next.Add(1) {
				for returns := 0; ; returns++ { // as a dispatcher does, at the next slot
					attempt := newAttempt(server.URL)
					attempt.ID = fmt.Sprint("job-", n)
					got := w.Deliver(t.Context(), attempt)
					if got.Result == shaper.ResultDone {
						break
					}
					if got.Result != shaper.ResultReturned || returns == 5 {
						failed <- got
						return
					}
					if got.Reason == workers.ReasonUnprocessed {
						unprocessed.Add(1)
					}
				}
			}
		})
	}
	sending.Wait()
	w.Close()
	if len(failed) > 0 {
		t.Fatalf("a job was not done, and its attempt is spent or comes back again and again: %+v", <-failed)
	}
	arrived, conns := map[string]int{}, map[string]int{}
	for _, r := range server.Requests(t, jobs) {
		if r.Status == http.StatusNoContent && r.Protocol == "HTTP/2.0" {
			arrived[r.ID]++
			conns[r.Connection]++
		}
	}
	for n := range jobs {
		if id := fmt.Sprint("job-", n+1); arrived[id] != 1 {
			t.Errorf("%s arrived %d times", id, arrived[id])
		}
	}
	if len(conns) < jobs/50 {
		t.Errorf("%d connections: nginx should have retired each after 50 requests", len(conns))
	}
	t.Logf("%d connections, %d requests were not processed and returned", len(conns), unprocessed.Load())
}
