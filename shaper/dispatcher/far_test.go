package dispatcher

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// TestStartsEvenlyFromAfar: the first claims of dispatchers that are 50 ms from Redis bring no bunch of departures.
func TestStartsEvenlyFromAfar(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate = 1000
		var history checker.History
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			if a.Depart() != nil {
				return shaper.Returned("late")
			}
			history.Delivered(a.ID, a.Number, time.Now())
			return shaper.Done(200)
		})
		drainFor(t, rig.Bucket("b", rate), worker, 3*time.Second, func() redis.Hook {
			<-time.After(330 * time.Millisecond) // one dispatcher starts after the other
			return far(25 * time.Millisecond)
		})
		r := history.Check()
		t.Logf("%s; most in 1s %d, in 100ms %d", r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
		if got := r.MostIn(time.Second); got > rate+2 {
			t.Errorf("%d in a second", got)
		}
		if got := r.MostIn(100 * time.Millisecond); got > rate/10+2 {
			t.Errorf("%d in 100 ms", got)
		}
		if r.Rate < .98*rate {
			t.Errorf("%.1f/s", r.Rate)
		}
	})
}

// TestFirstSlotsFromAfar: a process 50 ms from Redis keeps to its first slots too, though each of its first calls dials: the time of that does not
// count as one on the way.
func TestFirstSlotsFromAfar(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 10 * time.Millisecond
		var mu sync.Mutex
		var departures []time.Time
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			if a.Depart() != nil {
				return shaper.Returned("late")
			}
			mu.Lock()
			defer mu.Unlock()
			departures = append(departures, time.Now())
			return shaper.Done(200)
		})
		l := newSelfDispatching(t, rig.Bucket("b", int64(time.Second/interval)))
		l.hook = func() redis.Hook { return far(25 * time.Millisecond) }
		for range 150 {
			must.Get(l.client.Enqueue(t.Context(), l.job()))(t)
		}
		stop := l.dispatch(worker, nil)
		l.wantEmpty()
		stop()
		if len(departures) < 100 {
			t.Fatalf("%d departures", len(departures))
		}
		for i, at := range departures {
			if off := at.Sub(departures[0]) % interval; min(off, interval-off) > time.Millisecond {
				t.Errorf("departure %d is %s after the first, want a multiple of %s", i, at.Sub(departures[0]), interval)
			}
		}
	})
}

// far is a hook that makes the way to Redis that long, and the way back.
type far time.Duration

func (f far) way() { <-time.After(time.Duration(f)) }

func (f far) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		f.way()
		f.way()
		return next(ctx, network, addr)
	}
}

func (f far) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f.way()
		defer f.way()
		return next(ctx, cmd)
	}
}

func (f far) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f.way()
		defer f.way()
		return next(ctx, cmds)
	}
}
