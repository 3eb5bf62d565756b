//go:build soak

package soak

import (
	"context"
	"hash/fnv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/test/harness"
)

// few are buckets in which one dispatcher may have reserved all turns.
var few = map[string]parted{
	"1_flow": {flowsOfEach: 1}, "20_flows": {flowsOfEach: 20},
	"1_group": {groups: 1, flowsOfEach: 1}, "20_groups": {groups: 20, flowsOfEach: 1},
}

// TestFewTurns: where one dispatcher has reserved all turns, those that have free workers do not wait until the
// second of its reservation is over. None has workers enough for the rate alone, and all together have more than
// twice as many: with 256 each, deliveries that take 350 ms on average, and jobs that also wait for their slots.
func TestFewTurns(t *testing.T) {
	t.Parallel()
	const rate, dispatchers = 1000, 4
	for name, p := range few {
		for roundTrip, length := range map[time.Duration]time.Duration{time.Millisecond: 2 * time.Second, 10 * time.Millisecond: 4 * time.Second} {
			t.Run(name+"_"+roundTrip.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newPartedWorld(t, rate, roundTrip, rate*int((setUp+length+time.Second)/time.Second), p)
					w.slowly(t, dispatchers, 0, length)
					w.wantAll(t, rate, length)
				})
			})
		}
	}
}

// TestFewTurnsFewWorkers: sixteen dispatchers with hardly any worker each get the whole rate too, and their calls are no storm. Each
// worker that becomes free claims one job: that is two calls, three with groups, one more for the outcome, and one or two for a standby
// that is woken and finds nothing.
func TestFewTurnsFewWorkers(t *testing.T) {
	t.Parallel()
	const rate, roundTrip, length, callsAtMost = 100, 10 * time.Millisecond, 10 * time.Second, 6
	for name := range few {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newPartedWorld(t, rate, roundTrip, rate*int((setUp+length+time.Second)/time.Second), few[name])
				w.slowly(t, sixteen, 4, length)
				w.wantAll(t, rate, length)
				if calls := float64(w.ledger.Calls()) / float64(len(w.given())); calls > callsAtMost {
					t.Errorf("%.2f calls a departure, want at most %d", calls, callsAtMost)
				}
			})
		})
	}
}

// slowly runs dispatchers with so many workers each, 0 as many as they have by default, for so long behind their
// start. Deliveries take 200 to 500 ms.
func (w *groupWorld) slowly(t *testing.T, dispatchers, workers int, length time.Duration) {
	t.Helper()
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Depart() != nil {
			return shaper.Returned("late")
		}
		w.history.Delivered(a.ID, a.Number, time.Now())
		id := fnv.New32()
		_, _ = id.Write([]byte(a.ID))
		time.Sleep(200*time.Millisecond + time.Duration(id.Sum32()%300)*time.Millisecond) // in a bubble: no time passes
		return shaper.Done(200)
	})
	w.began = time.Now().Add(setUp)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range dispatchers {
		client := redis.UniversalClient(w.far(t))
		running.Go(func() {
			d, err := dispatcher.New(dispatcher.Config{
				Redis: client, Buckets: []shaper.Bucket{w.bucket}, Workers: map[string]shaper.Worker{w.bucket.Name: worker}, Concurrency: workers,
			})
			if err == nil {
				err = d.Run(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(setUp + length) // nor here
	stop()
	running.Wait()
}

// wantAll holds what was handed out behind the start, for so long, to the rate: no less, and no window has more.
func (w *groupWorld) wantAll(t *testing.T, rate int, length time.Duration) {
	t.Helper()
	all, r := w.given(), w.history.Check()
	share := float64(len(all.Within(w.began, w.began.Add(length)))) / (float64(rate) * length.Seconds())
	t.Logf("%.2f %% of the rate; ahead of it by at most %s in any window; arrived %d in 1s and %d in 100ms at most; calls %v",
		100*share, all.Early(rate), r.MostIn(time.Second), r.MostIn(100*time.Millisecond), w.ledger.Asked)
	if share < .98 {
		t.Errorf("%.2f %% of the rate", 100*share)
	}
	if early := all.Early(rate); early >= time.Microsecond {
		t.Errorf("the slots of some window are %s ahead of the rate", early)
	}
	for _, window := range []time.Duration{time.Second, 100 * time.Millisecond} {
		if most, want := r.MostIn(window), harness.MostIn(window, rate, w.roundTrip); most > want {
			t.Errorf("%d arrived in %s, want at most %d", most, window, want)
		}
	}
	if r.Extra > 0 || len(r.Unexpected) > 0 || r.Delivered != len(all) {
		t.Errorf("%d slots, %d deliveries, %d of them a second time, unexpected %v", len(all), r.Delivered, r.Extra, r.Unexpected)
	}
}
