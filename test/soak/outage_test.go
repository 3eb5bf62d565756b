//go:build soak

package soak

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// answer is what a request got, and when.
type answer struct {
	asked, took time.Duration // since the start; of the request
	status      int
}

// TestStoreAway: Redis stands still for 10 s under load. Each limit does what
// its configuration says, quickly, and all is as before soon after.
func TestStoreAway(t *testing.T) {
	harness.Quietly(t, storeAway)
}

func storeAway(t *testing.T, stall *harness.StallWatch) (fault string) {
	const outage, before, after = 10 * time.Second, time.Second, 5 * time.Second
	const callers = 8
	// A limit that is never reached, so that what is answered is the mode's doing;
	// and one for the local mode that is.
	tables := harness.LimitTable("closed", "token_bucket", "1000000/s") +
		harness.LimitTable("open", "token_bucket", "1000000/s", `on_store_failure = "open"`) +
		harness.LimitTable("local", "token_bucket", "200/s", "burst = 20", `on_store_failure = "local"`) +
		"[[buckets]]\nname = \"webhooks\"\nrate = \"1000/s\"\ncapacity = 1000000\nlimits = [\"closed\"]\n[buckets.webhook]\nurl = \"http://127.0.0.1:9/\"\n"
	server := redistest.Start(t)
	url := harness.Producers(t, server.URL(), 1, tables)[0]
	targets := map[string]func(a *harness.Asker) int{
		"enqueue": func(a *harness.Asker) int { return a.Enqueue(t.Context(), url+"/v1/buckets/webhooks/jobs") },
	}
	for _, mode := range []string{"closed", "open", "local"} {
		targets[mode] = func(a *harness.Asker) int {
			status, _ := a.Ask(t.Context(), url+"/v1/limits/"+mode+"/check")
			return status
		}
	}

	began := time.Now()
	logs := map[string][]answer{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for mode, ask := range targets {
		asker := harness.NewAsker(t, callers)
		for range callers {
			all.Go(func() {
				var own []answer
				pace := time.NewTicker(10 * time.Millisecond) // a hundred a second from each
				defer pace.Stop()
				for time.Since(began) < before+outage+after {
					at := time.Now()
					status := ask(asker)
					own = append(own, answer{at.Sub(began), time.Since(at), status})
					<-pace.C
				}
				mu.Lock()
				logs[mode] = append(logs[mode], own...)
				mu.Unlock()
			})
		}
	}
	harness.Await(t, 10*time.Second, "the load runs", func() bool { return time.Since(began) >= before })
	server.Stop()
	stopped := time.Since(began)
	harness.Await(t, 20*time.Second, "10 s", func() bool { return time.Since(began) >= stopped+outage })
	server.Cont()
	back := time.Since(began)
	all.Wait()

	allowed := map[string][]int{
		"enqueue": {http.StatusServiceUnavailable}, "closed": {http.StatusServiceUnavailable},
		"open": {http.StatusOK}, "local": {http.StatusOK, http.StatusTooManyRequests},
	}
	for _, mode := range []string{"enqueue", "closed", "open", "local"} {
		t.Run(mode, func(t *testing.T) {
			var took []time.Duration
			statuses := map[int]int{}
			slowest, recovered := time.Duration(0), time.Duration(0)
			for _, a := range logs[mode] {
				ended := a.asked + a.took
				switch {
				case ended > stopped && a.asked < back:
					slowest = max(slowest, a.took)
					if a.asked > stopped+100*time.Millisecond && ended < back {
						took = append(took, a.took)
						statuses[a.status]++
					}
				case a.asked >= back && a.status == http.StatusServiceUnavailable:
					recovered = max(recovered, ended-back)
				}
				if a.status == 0 {
					t.Errorf("no answer at %s after %s", a.asked, a.took)
				}
			}
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			t.Logf("%-8s answered %v during the outage, p50 %s, p99 %s, slowest %s; the last 503 %s after it",
				mode, statuses, took[len(took)/2].Round(time.Microsecond), p99.Round(time.Microsecond), slowest.Round(time.Millisecond), recovered.Round(time.Millisecond))
			for status, n := range statuses {
				if !slices.Contains(allowed[mode], status) {
					t.Errorf("%d answers of %d during the outage, want %v", n, status, allowed[mode])
				}
			}
			if mode == "local" {
				lasted := back - stopped
				if n := statuses[http.StatusOK]; n > int(200*lasted.Seconds())+20 || n < int(200*lasted.Seconds())/2 {
					fault = fmt.Sprintf("the local limiter of 200/s let %d through in %s", n, lasted)
				}
			}
			if recovered > 3*time.Second {
				fault = fmt.Sprintf("%s: 503 until %s after Redis was back", mode, recovered)
			}
			if bound := inFlightBound + stall.SoFar(); slowest > bound {
				fault = fmt.Sprintf("%s: an answer took %s, want at most %s", mode, slowest, bound)
			}
		})
	}
	return fault
}

// inFlightBound is in what time a request is answered that is under way when
// Redis stops: 500 ms, and what a client of a busy machine sees on top.
const inFlightBound = 600 * time.Millisecond
