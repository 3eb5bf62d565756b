package dispatcher

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
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
