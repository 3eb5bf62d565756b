//go:build soak

package test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
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
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		server := redistest.Start(t)
		var mu sync.Mutex
		var came slots
		s := start(t, server, plan{rate: rate, dispatchers: 3, lease: 5 * time.Second, respond: func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
			mu.Lock()
			came = append(came, time.Now().UnixMicro())
			mu.Unlock()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
			}
		}})
		s.dispatchers[2].stop(t)
		given := monitor(t, server)
		s.post("come", int(rate*(4*phase+2*time.Second).Seconds()))
		began := time.Now()
		await(t, phase, "the first phase", func() bool { return time.Since(began) >= phase })
		s.dispatchers[2] = s.restart[2]()
		added := time.Since(began)
		await(t, phase, "the second phase", func() bool { return time.Since(began) >= 2*phase })
		s.dispatchers[0].stop(t)
		stopped := time.Since(began)
		await(t, phase, "the third phase", func() bool { return time.Since(began) >= 3*phase })
		s.dispatchers[1].kill()
		killed := time.Since(began)
		await(t, phase, "the fourth phase", func() bool { return time.Since(began) >= 4*phase })
		all := given.sorted()
		slotsThen := all.within(began, began.Add(4*phase))
		mu.Lock()
		cameThen := slots(slices.Sorted(slices.Values(came))).within(began, began.Add(4*phase))
		mu.Unlock()
		r := s.awaitDelivered(30 * time.Second)
		due := int(rate * window.Seconds())
		t.Logf("added at %s, stopped at %s, killed at %s", added.Round(time.Millisecond), stopped.Round(time.Millisecond), killed.Round(time.Millisecond))
		t.Logf("in %s, of %d: slots %d to %d, arrivals %d to %d; slots ahead of the rate by at most %s in any window; %d slots were lost, %d jobs came twice",
			window, due, slotsThen.fewest(window), slotsThen.most(window), cameThen.fewest(window), cameThen.most(window), all.early(rate),
			len(given.sorted())-r.Delivered, len(r.Duplicated))
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		if early := all.early(rate); early >= time.Microsecond || len(all) < due {
			t.Errorf("%d slots, those of some window are %s ahead of the rate", len(all), early)
		}
		return cmp.Or(stall.dipped("slots", slotsThen, rate, window), stall.dipped("arrivals", cameThen, rate, window),
			stall.crowded(cameThen.most, rate, steady, time.Second, window))
	})
}

// dipped says that some window has less than 98 % of what is due in it, "" if none
// has. It may be short by as long as the machine stood still.
func (w *stallWatch) dipped(what string, s slots, rate int, window time.Duration) string {
	if got, want := s.fewest(window), .98*float64(rate)*(window-w.cost()).Seconds(); float64(got) < want {
		return fmt.Sprintf("%d %s in some %s, want at least %.0f", got, what, window, want)
	}
	return ""
}
