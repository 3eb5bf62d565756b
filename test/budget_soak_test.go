//go:build soak

package test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
)

// tokenAPI is an API with a limit of tokens in any window. It counts what a call reserves when it comes, and refuses what is too much.
type tokenAPI struct {
	limit  int64
	window time.Duration
	costs  map[string]int64

	mu      sync.Mutex
	calls   []tokenCall
	refused int
	most    int64 // in a window
	sum     int64 // of all calls
	first   time.Time
	last    time.Time
}

type tokenCall struct {
	at   time.Time
	cost int64
}

func (a *tokenAPI) respond(w http.ResponseWriter, r *http.Request, id string, _ int) {
	a.mu.Lock()
	now, cost := time.Now(), a.costs[id]
	a.calls = slices.DeleteFunc(a.calls, func(c tokenCall) bool { return now.Sub(c.at) >= a.window })
	inWindow := cost
	for _, c := range a.calls {
		inWindow += c.cost
	}
	over := inWindow > a.limit
	if over {
		a.refused++
	} else {
		a.calls, a.most, a.sum, a.last = append(a.calls, tokenCall{now, cost}), max(a.most, inWindow), a.sum+cost, now
		if a.first.IsZero() {
			a.first = now
		}
	}
	a.mu.Unlock()
	if over {
		http.Error(w, "too many tokens", http.StatusTooManyRequests)
		return
	}
	select {
	case <-time.After(200 * time.Millisecond): // what a call takes
	case <-r.Context().Done():
	}
}

// TestBudgetOfTokens: three dispatchers with Redis 50 ms away, one of which is killed: the API refuses no call, no window of it has more than
// the budget, nothing is lost, and while jobs wait most of the budget is used. In a bucket, in flows, in groups and in a pool.
func TestBudgetOfTokens(t *testing.T) {
	const limit, window, jobs = 90_000, 60 * time.Second, 45
	budgets := fmt.Sprintf("budgets = [\"%d tokens/%s\"]\n", limit, window)
	for name, bucket := range map[string]string{
		"bucket": budgets,
		"flows":  budgets + "[buckets.flow]\nkey = \"job\"\n",
		"flow":   "[buckets.flow]\nkey = \"job\"\n" + budgets,
		"group":  "[buckets.flow]\nkey = \"job\"\n[buckets.group]\nkey = \"job\"\n" + budgets,
		"pool":   "pool = \"vendor\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &tokenAPI{limit: limit, window: window, costs: map[string]int64{}}
			server := redistest.Start(t)
			proxy, err := faultproxy.New(server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = proxy.Close() })
			proxy.SetDelay(50 * time.Millisecond)
			more := ""
			if name == "pool" {
				more = "[[pools]]\nname = \"vendor\"\nrate = \"100/s\"\n" + budgets
			}
			s := start(t, server, plan{
				more: more,
				rate: 100, dispatchers: 3, lease: 3 * time.Second, timeout: 2 * time.Second, redisURL: "redis://" + proxy.Addr(), bucket: bucket, respond: api.respond,
			})
			var body strings.Builder
			for i := range jobs {
				id, cost := "job-"+strconv.Itoa(i), int64(200+i*3797%3800)
				names := ""
				switch name {
				case "flows":
					names = fmt.Sprintf(`"flow":"f%d",`, i%7)
				case "flow":
					names = `"flow":"f",`
				case "group":
					names = fmt.Sprintf(`"flow":"f%d","group":"g",`, i%7)
				}
				api.costs[id] = cost
				fmt.Fprintf(&body, `{"id":%q,%s"payload":{},"cost":{"input":200,"output":%d}}`+"\n", id, names, cost-200)
				s.history.Admitted(id, time.Now())
			}
			status, answer := s.request(http.MethodPost, "/v1/buckets/"+bucketName+"/jobs/batch", "application/x-ndjson", strings.NewReader(body.String()))
			if status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"admitted":%d,`, jobs)) {
				t.Fatalf("%d %.300s", status, answer)
			}
			await(t, 2*window, "a third is delivered", func() bool { return s.history.Check().Delivered >= jobs/3 })
			s.dispatchers[0].kill()
			r := s.awaitDelivered(5 * window)
			api.mu.Lock()
			defer api.mu.Unlock()
			used := float64(api.sum) / float64(limit) / (float64(api.last.Sub(api.first)) / float64(window))
			t.Logf("%d calls of %d tokens in %s, %.1f %% of the budget; most in a window %d of %d; refused %d; %d again after the kill",
				jobs, api.sum, api.last.Sub(api.first).Round(time.Second), 100*used, api.most, api.limit, api.refused, r.Extra)
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if api.refused > 0 {
				t.Errorf("the API refused %d calls", api.refused)
			}
		})
	}
}
