package test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// algorithms are those of the field, with a setting each that has one.
var algorithms = []struct{ name, algorithm, more string }{
	{"bucket", "token_bucket", ""},
	{"log", "sliding_window_log", ""},
	{"counter", "sliding_window_counter", ""},
	{"pieces", "sliding_window_counter", "precision = 10"},
	{"fixed", "fixed_window", ""},
}

// TestExactLimit: 64 callers at 4 processes ask for more than a limit of 1,000
// holds; 1,000 of them pass. The window is the longest there is, so that no
// edge and no refill lies within the test.
func TestExactLimit(t *testing.T) {
	t.Parallel()
	const limit, processes, callers, each = 1000, 4, 64, 25
	tables := "store_timeout = \"10s\"\n" // a busy machine must not decide who passes
	for _, a := range algorithms {
		tables += harness.LimitTable(a.name, a.algorithm, fmt.Sprintf("%d/744h", limit), a.more)
	}
	urls := harness.Producers(t, redistest.Start(t).URL(), processes, tables)
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			asker := harness.NewAsker(t, callers)
			var admitted, refused, other atomic.Int64
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					for range each {
						status, _ := asker.Ask(t.Context(), urls[caller%processes]+"/v1/limits/"+a.name+"/check")
						switch status {
						case http.StatusOK:
							admitted.Add(1)
						case http.StatusTooManyRequests:
							refused.Add(1)
						default:
							other.Add(1)
						}
					}
				})
			}
			all.Wait()
			t.Logf("%s: of %d from %d callers at %d processes: %d admitted, %d refused", a.algorithm, callers*each, callers, processes, admitted.Load(), refused.Load())
			if admitted.Load() != limit || other.Load() != 0 {
				t.Errorf("%d admitted, %d answered otherwise; want %d and 0", admitted.Load(), other.Load(), limit)
			}
		})
	}
}

// TestRefusalSpendsNothing is P5: what a full bucket refuses is not charged to a limit.
func TestRefusalSpendsNothing(t *testing.T) {
	t.Parallel()
	const limit, capacity, each = 10, 5, 20
	server := redistest.Start(t)
	tables := harness.LimitTable("spends", "fixed_window", fmt.Sprintf("%d/744h", limit)) + fmt.Sprintf(`[[buckets]]
name = "small"
rate = "1/h"
capacity = %d
limits = ["spends"]
[buckets.shed]
normal = 100
high = 100
low = 100
[buckets.webhook]
url = "http://127.0.0.1:9/"
`, capacity)
	url := harness.Producers(t, server.URL(), 1, tables)[0] + "/v1/buckets/small/jobs"
	asker := harness.NewAsker(t, 1)
	var let [3]int
	for round := range let {
		for i := range each {
			id := fmt.Sprintf("job-%d-%d", round, i)
			send := func() (int, string) { return asker.Post(t.Context(), url, fmt.Sprintf(`{"id":%q,"payload":{}}`, id)) }
			status, answer := send()
			for status == http.StatusServiceUnavailable { // the machine stood still: the same id is the same job
				status, answer = send()
			}
			switch status {
			case http.StatusAccepted:
				let[round]++
			case http.StatusTooManyRequests:
			default:
				t.Fatalf("%d %s", status, answer)
			}
		}
		for i := range each { // room for the next round
			asker.Cancel(t.Context(), fmt.Sprintf("%s/job-%d-%d", url, round, i))
		}
	}
	if want := [3]int{capacity, limit - capacity, 0}; let != want {
		t.Errorf("%v were let in with %d refused for want of room, want %v", let, each-capacity, want)
	}
}
