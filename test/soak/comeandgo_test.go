//go:build soak

package soak

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestDispatchersComeAndGo: one is added, one is stopped and one is killed, under
// load. In no window of 10 s do the slots dip by more than 2 %, and in none of any
// length are there more than the rate allows. Nor do the arrivals.
//
// What a killed one takes with it are the slots that it had claimed and not used: of
// one horizon at most, that is 80 ms at this rate and never more than 200 ms, 2 % of
// 10 s. Nobody gets them again, and the jobs leave in other ones when their leases have
// run out. So slots do not dip at all while somebody claims in time, and arrivals by
// what was lost: here together within the same 2 %.
func TestDispatchersComeAndGo(t *testing.T) {
	const rate, phase, window = 200, 5 * time.Second, 10 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server := redistest.Start(t)
		var mu sync.Mutex
		var came harness.Slots
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 3, Lease: 5 * time.Second, Respond: func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
			mu.Lock()
			came = append(came, time.Now().UnixMicro())
			mu.Unlock()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
			}
		}})
		s.Dispatchers[2].Stop(t)
		given := harness.Monitor(t, server)
		s.Post("come", int(rate*(4*phase+2*time.Second).Seconds()))
		began := time.Now()
		harness.Await(t, phase, "the first phase", func() bool { return time.Since(began) >= phase })
		s.Dispatchers[2] = s.Restart[2]()
		added := time.Since(began)
		harness.Await(t, phase, "the second phase", func() bool { return time.Since(began) >= 2*phase })
		s.Dispatchers[0].Stop(t)
		stopped := time.Since(began)
		harness.Await(t, phase, "the third phase", func() bool { return time.Since(began) >= 3*phase })
		s.Dispatchers[1].Kill()
		killed := time.Since(began)
		harness.Await(t, phase, "the fourth phase", func() bool { return time.Since(began) >= 4*phase })
		all := given.Sorted()
		slotsThen := all.Within(began, began.Add(4*phase))
		mu.Lock()
		cameThen := harness.Slots(slices.Sorted(slices.Values(came))).Within(began, began.Add(4*phase))
		mu.Unlock()
		r := s.AwaitDelivered(30 * time.Second)
		due := int(rate * window.Seconds())
		t.Logf("added at %s, stopped at %s, killed at %s", added.Round(time.Millisecond), stopped.Round(time.Millisecond), killed.Round(time.Millisecond))
		t.Logf("in %s, of %d: slots %d to %d, arrivals %d to %d; slots ahead of the rate by at most %s in any window; %d slots were lost, %d jobs came twice",
			window, due, slotsThen.Fewest(window), slotsThen.Most(window), cameThen.Fewest(window), cameThen.Most(window), all.Early(rate),
			len(given.Sorted())-r.Delivered, len(r.Duplicated))
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		if early := all.Early(rate); early >= time.Microsecond || len(all) < due {
			t.Errorf("%d slots, those of some window are %s ahead of the rate", len(all), early)
		}
		return cmp.Or(stall.Dipped("slots", slotsThen, rate, window), stall.Dipped("arrivals", cameThen, rate, window),
			stall.Crowded(cameThen.Most, rate, harness.Steady, time.Second, window))
	})
}
