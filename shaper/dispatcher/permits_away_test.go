package dispatcher

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// slowEnqueues is a hook that makes enqueues time out: they reach Redis, or they do not.
type slowEnqueues struct {
	left    *atomic.Int32
	arrives bool
}

func (s slowEnqueues) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s slowEnqueues) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if lua.ScriptOf(cmd) != lua.Enqueue || s.left.Add(-1) < 0 {
			return next(ctx, cmd)
		}
		if s.arrives {
			_ = next(ctx, cmd)
		}
		cmd.SetErr(os.ErrDeadlineExceeded)
		return os.ErrDeadlineExceeded
	}
}

func (s slowEnqueues) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestPermitsWhileRedisIsSlow: an enqueue whose outcome is not known is made again under its id, and the caller gets its permit.
func TestPermitsWhileRedisIsSlow(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"the job is in": true, "the job is not in": false} {
		for _, fails := range []int32{1, 5, 12, 40} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newSelfDispatching(t, rig.Bucket("b", 100))
					l.dispatch(l.noWorker(), nil)
					left := &atomic.Int32{}
					l.hook = func() redis.Hook { return slowEnqueues{left, arrives} }
					s := l.sender()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					first, err := s.Acquire(ctx, l.job()) // Redis knows the script from then on
					must.OK(t, err)
					first.Settle(shaper.Done(200))
					left.Store(fails)
					began := time.Now()
					permit, err := s.Acquire(ctx, l.job())
					if err != nil {
						t.Fatalf("after %s and %d enqueues that failed: %v", time.Since(began), fails, err)
					}
					t.Logf("%d: %s", fails, time.Since(began))
					permit.Settle(shaper.Done(200))
					l.wantEmpty()
				})
			})
		}
	}
}

// noWorker fails the test: the jobs of these buckets are sent by other processes.
func (l *selfDispatching) noWorker() shaper.Worker {
	return shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		l.Errorf("a worker got job %s", a.ID)
		return shaper.Done(0)
	})
}

// TestLonePermitsFromAfar: jobs that come one by one get their permits too, where all loops are idle, and where the way is too long for the horizon.
func TestLonePermitsFromAfar(t *testing.T) {
	t.Parallel()
	for _, way := range []time.Duration{25 * time.Millisecond, 90 * time.Millisecond} {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newSelfDispatching(t, rig.Bucket("b", 100))
				l.hook = func() redis.Hook { return far(way) }
				for range 3 {
					l.dispatch(l.noWorker(), nil)
				}
				s := l.sender()
				var first, longest time.Duration
				for n := range 50 {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					permit, err := s.Acquire(ctx, l.job())
					cancel()
					if err != nil {
						t.Fatalf("after %s: %v", time.Since(began), err)
					}
					if n == 0 { // dispatchers that do not know yet that there are such jobs may give it back
						first = time.Since(began)
					} else {
						longest = max(longest, time.Since(began))
					}
					permit.Settle(shaper.Done(200))
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
				}
				t.Logf("the first permit took %s, others %s at most", first, longest)
				if first > 10*time.Second || longest > 40*way {
					t.Errorf("the first permit took %s, another %s", first, longest)
				}
			})
		})
	}
}
