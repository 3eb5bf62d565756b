//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/test/harness"
)

// What the tests of this file are about: as many dispatchers with one bucket.
const (
	sixteen     = 16
	backlog     = 100_000
	callsAtMost = 2.0 // a departure, at 100/s (Bull, issue 1540, fell from 32/s to 6/s here)

	callsAtMostGroups = 2.1 // there a claim is three: 1.9 to 2.0
)

// far is how far away Redis is in half of them.
var far = []time.Duration{0, 10 * time.Millisecond}

// TestTenMinutes: sixteen dispatchers and a backlog, for ten minutes. No window has
// more slots in it than the rate allows, at least 98 % of them are handed out, also
// in each minute, and at 100/s they cost at most two calls of Redis each.
//
// The minutes are those of a bubble, where ten of them pass in seconds. At
// 5,000/s they would be three million departures, too many to wait for: there the
// backlog is all, which is 20 s.
func TestTenMinutes(t *testing.T) {
	t.Parallel()
	percent := debug.SetGCPercent(800) // each run of a script leaves much behind
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for _, c := range []struct {
		rate   int
		length time.Duration
	}{{1, 10 * time.Minute}, {100, 10 * time.Minute}, {5000, backlog * time.Second / 5000}} {
		for _, roundTrip := range far {
			t.Run(fmt.Sprintf("%d_%s", c.rate, roundTrip), func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				w := newWorld(t, c.rate, roundTrip, backlog)
				synctest.Test(t, func(t *testing.T) { tenMinutes(t, w, c.rate, c.length) })
				t.Logf("took %s", time.Since(began).Round(time.Millisecond))
			})
		}
	}
}

func tenMinutes(t *testing.T, w *world, rate int, length time.Duration) {
	t.Helper()
	w.enter(t)
	began := time.Now()
	w.run(t, sixteen, length)

	all := w.ledger.Sorted()
	slots := all.Within(began, began.Add(length)) // a horizon more was handed out at the end
	share := float64(len(slots)) / (float64(rate) * length.Seconds())
	window := min(time.Minute, length/2)
	due := int(float64(rate) * window.Seconds())
	calls := float64(w.ledger.Calls()) / float64(len(all))
	t.Logf("%d slots in %s, %.2f %% of the rate; ahead of it by at most %s in any window; in %s at least %d and at most %d of %d; %.2f calls a slot: %v",
		len(slots), length, 100*share, all.Early(rate), window, slots.Fewest(window), slots.Most(window), due, calls, w.ledger.Asked)
	if early := all.Early(rate); early >= time.Microsecond {
		t.Errorf("the slots of some window are %s ahead of the rate", early)
	}
	if share < .98 || float64(slots.Fewest(window)) < .98*float64(due) {
		t.Errorf("%.2f %% of the rate, and in %s as few as %d of %d", 100*share, window, slots.Fewest(window), due)
	}
	if rate == 100 && calls > callsAtMost {
		t.Errorf("%.2f calls a departure, want at most %.0f", calls, callsAtMost)
	}
	if len(w.ledger.Faults) > 0 {
		t.Errorf("%d calls failed, such as %v", len(w.ledger.Faults), w.ledger.Faults[0])
	}
	w.wantClean(t, rate, len(all))
}

// wantClean holds what arrived to the rate and to the slots, and the store to what
// arrived.
func (w *world) wantClean(t *testing.T, rate, slots int) {
	t.Helper()
	r := w.history.Check()
	t.Logf("arrived: %s; most in 1s %d", r, r.MostIn(time.Second))
	if r.Extra > 0 || len(r.Unexpected) > 0 || r.Delivered != slots {
		t.Errorf("%d slots, %d deliveries, %d of them a second time, unexpected %v", slots, r.Delivered, r.Extra, r.Unexpected)
	}
	if most, want := r.MostIn(time.Second), harness.MostIn(time.Second, rate, w.roundTrip); most > want {
		t.Errorf("%d arrived in a second, want at most %d", most, want)
	}
	client := w.connect(t, 0)
	jobs, err := client.HLen(t.Context(), harness.BusyKey).Result()
	if err != nil || int(jobs) != backlog-r.Delivered {
		t.Errorf("%d jobs are left of %d, of which %d were delivered: %v", jobs, backlog, r.Delivered, err)
	}
}

// TestSixteenWithFlows: what is true of a plain bucket at 100/s is true of one with flows or groups: as many slots, in no
// window too many, and few calls. A claim is two calls there, three with groups: these cost hardly less than two
// a departure, of which one is for its outcome. All flows get their turns.
//
// What it costs to start is not counted.
func TestSixteenWithFlows(t *testing.T) {
	t.Parallel()
	const rate = 100
	for _, p := range []parted{{0, 1}, {0, 20}, {0, 500}, {1, 1}, {20, 1}, {500, 1}} {
		length := 10 * time.Second
		if max(p.groups, 1)*p.flowsOfEach == 1 { // one after the other takes over at first, and not without a gap
			length *= 2
		}
		for _, roundTrip := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d_groups_%d_flows_%s", p.groups, p.flowsOfEach, roundTrip), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newPartedWorld(t, rate, roundTrip, rate*int((setUp+calming+length+time.Second)/time.Second), p)
					w.sixteenWithFlows(t, rate, length, p)
				})
			})
		}
	}
}

// calming is how long it takes until one serves and the others stand by.
const calming = 3 * time.Second

func (w *groupWorld) sixteenWithFlows(t *testing.T, rate int, length time.Duration, p parted) {
	t.Helper()
	clients := make([]redis.UniversalClient, sixteen)
	for i := range clients {
		clients[i] = w.far(t)
	}
	w.began = time.Now().Add(setUp)
	calls, departures := 0, 0
	runDispatchers(t, clients, w.bucket, &w.history, func() {
		time.Sleep(setUp + calming) // in a bubble: no time passes
		calls, departures = w.ledger.Calls(), len(w.given())
		time.Sleep(length) // nor here
		calls, departures = w.ledger.Calls()-calls, len(w.given())-departures
	})
	w.wantAll(t, rate, calming+length)

	most := callsAtMost
	if p.groups > 0 {
		most = callsAtMostGroups
	}
	each := float64(calls) / float64(departures)
	fewest, longest := w.turns(max(p.groups, 1) * p.flowsOfEach)
	t.Logf("%.2f calls a departure; a flow had %d to %d", each, fewest, longest)
	if each > most {
		t.Errorf("%.2f calls a departure, want at most %.1f", each, most)
	}
	if longest-fewest > max(2, longest/5) { // while they start, many have reserved turns
		t.Errorf("some flow had %d turns, another one %d", fewest, longest)
	}
	if len(w.ledger.Faults) > 0 {
		t.Errorf("%d calls failed, such as %v", len(w.ledger.Faults), w.ledger.Faults[0])
	}
}

// TestSixteenAreIdle: those that stood by while there were jobs sleep when there are none, and a job that comes then
// leaves at once.
func TestSixteenAreIdle(t *testing.T) {
	t.Parallel()
	const rate, jobs, roundTrip = 100, 300, 10 * time.Millisecond
	for name, p := range few {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newPartedWorld(t, rate, roundTrip, jobs, p)
				clients := make([]redis.UniversalClient, sixteen)
				for i := range clients {
					clients[i] = w.far(t)
				}
				runDispatchers(t, clients, w.bucket, &w.history, func() {
					time.Sleep(setUp + jobs*time.Second/rate + 5*time.Second) // in a bubble: no time passes
					before := w.asked(lua.Reserve, lua.Claim)
					time.Sleep(10 * time.Second) // nor here
					if asked := w.asked(lua.Reserve, lua.Claim) - before; asked > 0 {
						t.Errorf("%d calls for jobs while there were none", asked)
					}
					came := time.Now()
					w.enqueue(t, shaper.Job{ID: "late", Flow: "f", Group: "g"})
					time.Sleep(time.Second)
					given := w.given()
					if last := time.UnixMicro(given[len(given)-1]).Sub(came); len(given) != jobs+1 || last > 5*roundTrip {
						t.Errorf("%d slots, the last one %s after the job had come", len(given), last)
					}
				})
			})
		})
	}
}

// TestSixteenDispatchers is TestTenMinutes on a real Redis, for as long as it may
// take: what is true in the bubble is true there.
func TestSixteenDispatchers(t *testing.T) {
	const length = 6 * time.Second
	for _, rate := range []int{100, 5000} {
		for _, roundTrip := range far {
			t.Run(fmt.Sprintf("%d_%s", rate, roundTrip), func(t *testing.T) {
				harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
					return sixteenDispatchers(t, stall, rate, length, roundTrip)
				})
			})
		}
	}
}

func sixteenDispatchers(t *testing.T, stall *harness.StallWatch, rate int, length, roundTrip time.Duration) (fault string) {
	server := redistest.Start(t)
	proxy, err := faultproxy.New(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	proxy.SetDelay(roundTrip)
	var l harness.Ledger
	var history checker.History
	fillBucket(t, server.Client(), pacedBucket(rate), backlog, &history)
	clients := make([]redis.UniversalClient, sixteen)
	for i := range clients {
		client, err := redisconn.Connect("redis://"+proxy.Addr(), redisconn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(&l)
		clients[i] = client
	}
	settled := 2 * rate // slots until who serves is settled: what the start costs is not counted
	before := 0
	runDispatchers(t, clients, pacedBucket(rate), &history, func() {
		harness.Await(t, 10*time.Second, "departures go on", func() bool { return len(l.Sorted()) > settled })
		before = l.Calls()
		time.Sleep(length)
	})
	slots, r := l.Sorted(), history.Check()
	calls := float64(l.Calls()-before) / float64(len(slots)-settled)
	t.Logf("%d slots at %.1f/s, ahead of the rate by at most %s in any window; in 1s at least %d and at most %d; %.2f calls a slot: %v",
		len(slots), slots.Rate(), slots.Early(rate), slots.Fewest(time.Second), slots.Most(time.Second), calls, l.Asked)
	harness.Report(t, rate, r)
	if early := slots.Early(rate); early >= time.Microsecond {
		t.Errorf("the slots of some window are %s ahead of the rate", early)
	}
	switch {
	case r.Extra > 0 || len(r.Unexpected) > 0:
		return fmt.Sprintf("%d came twice, unexpected %v", r.Extra, r.Unexpected)
	case rate == 100 && calls > callsAtMost:
		return fmt.Sprintf("%.2f calls a departure, want at most %.0f", calls, callsAtMost)
	}
	return cmp.Or(stall.Slow(slots.Rate(), rate, len(slots), .98), stall.Crowded(r.MostIn, rate, harness.Steady+roundTrip, time.Second))
}
