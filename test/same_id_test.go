package test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestSameID is P4: an id is one job, whoever enqueues it at the same time, and after it is done; under the id of
// another one a job is refused.
func TestSameID(t *testing.T) {
	t.Parallel()
	const callers = 16
	s := start(t, redistest.Start(t), harness.Plan{Rate: 200, Dispatchers: 1})
	path, asker := s.API+"/v1/buckets/"+harness.BucketName+"/jobs", harness.NewAsker(t, callers)
	const body, other = `{"id":"same-0","payload":{"n":1}}`, `{"id":"same-0","payload":{"n":2}}`
	var mu sync.Mutex
	fresh, again, otherwise := 0, 0, 0
	ask := func() {
		status, answer := asker.Post(t.Context(), path, body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case status == http.StatusAccepted && strings.Contains(answer, `"duplicate":true`):
			again++
		case status == http.StatusAccepted:
			fresh++
		default:
			otherwise++
		}
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(ask)
	}
	all.Wait()
	s.History.Admitted("same-0", time.Now())
	s.AwaitDelivered(20 * time.Second)
	harness.Await(t, 20*time.Second, "it is settled", func() bool { return s.Unfinished() == 0 })
	ask()
	if fresh != 1 || again != callers || otherwise != 0 {
		t.Errorf("%d were told that the job is new, %d that it is there, %d otherwise; want 1, %d and 0", fresh, again, otherwise, callers)
	}
	if status, answer := asker.Post(t.Context(), path, other); status != http.StatusUnprocessableEntity {
		t.Errorf("other content under the same id: %d %s, want 422", status, answer)
	}
	s.Post("last", 1) // what came later has left, so that of this job nothing is to come
	if r := s.AwaitDelivered(20 * time.Second); r.Extra > 0 || r.Delivered != 2 {
		t.Errorf("%s: want one delivery of each", r)
	}
}
