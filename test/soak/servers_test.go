//go:build soak

package soak

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/test/harness"
)

// mortal is a hook of a dispatcher that may die: from then on Redis hears no more of
// it, nor it of Redis.
type mortal struct {
	dead   atomic.Bool
	served atomic.Int64 // when it was given slots last, of the bubble's clock
}

var errDead = errors.New("this process is dead")

func (m *mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.dead.Load() {
			return errDead
		}
		err := next(ctx, cmd)
		if m.dead.Load() {
			return errDead
		}
		if err == nil && lua.ScriptOf(cmd) == lua.Claim {
			if reply, ok := cmd.(interface{ Val() any }); ok && len(harness.SlotsOf(reply.Val())) > 0 {
				m.served.Store(time.Now().UnixMicro())
			}
		}
		return err
	}
}

func (m *mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if m.dead.Load() {
			for _, cmd := range cmds { // who looks at one sees no answer of a living one
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}

// TestWhoServesDies: of many dispatchers few serve a slow bucket, and the others stand
// by. Each time it is the one that was given slots last that dies, with its slots, and
// soon another one is started. In no window of 10 s do the slots dip by more than 2 %,
// and there are never more than the rate allows; arrivals lack what died with their
// processes on top of that, which is one horizon, 160 ms at this rate.
func TestWhoServesDies(t *testing.T) {
	t.Parallel()
	const rate, dispatchers, deaths, every, window = 100, 8, 12, 11 * time.Second, 10 * time.Second
	const horizon = 160 * time.Millisecond
	for _, roundTrip := range far {
		t.Run(roundTrip.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rate, roundTrip, 2*rate*deaths*int(every/time.Second))
			synctest.Test(t, func(t *testing.T) {
				w.enter(t)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				var all []*mortal
				var mu sync.Mutex
				var came harness.Slots
				delivered := map[string]int{}
				begin := func() {
					m := &mortal{}
					all = append(all, m)
					client := w.connect(t, w.roundTrip)
					client.AddHook(&w.ledger)
					client.AddHook(m) // within that of the ledger, which notes what was answered
					running.Go(func() {
						err := runDispatcher(ctx, client, w.bucket, func(a *shaper.Attempt) {
							if m.dead.Load() {
								return
							}
							mu.Lock()
							defer mu.Unlock()
							delivered[a.ID]++
							came = append(came, time.Now().UnixMicro())
						})
						if err != nil && !m.dead.Load() {
							t.Error(err)
						}
					})
				}
				for range dispatchers {
					begin()
				}
				time.Sleep(every)
				began := time.Now()
				for range deaths {
					server := all[0]
					for _, m := range all {
						if !m.dead.Load() && (server.dead.Load() || m.served.Load() > server.served.Load()) {
							server = m
						}
					}
					server.dead.Store(true)
					time.Sleep(every / 2)
					begin()
					time.Sleep(every / 2)
				}
				ended := time.Now()
				stop()
				running.Wait()

				given := w.ledger.Sorted()
				then := given.Within(began, ended)
				twice := 0
				for _, times := range delivered {
					twice += times - 1
				}
				lost, came := len(given)-len(came), came.Within(began, ended)
				due := int(rate * window.Seconds())
				t.Logf("%d of those that served died: in %s, of %d: slots %d to %d, arrivals %d to %d; ahead of the rate by at most %s in any window; %d slots were lost, %d jobs came twice",
					deaths, window, due, then.Fewest(window), then.Most(window), came.Fewest(window), came.Most(window), given.Early(rate), lost, twice)
				if early := given.Early(rate); early >= time.Microsecond {
					t.Errorf("the slots of some window are %s ahead of the rate", early)
				}
				if fewest := float64(then.Fewest(window)); fewest < .98*float64(due) {
					t.Errorf("%.0f slots in some %s, want at least 98 %% of %d", fewest, window, due)
				}
				died := rate * horizon.Seconds()
				if fewest := float64(came.Fewest(window)); fewest < .98*float64(due)-died {
					t.Errorf("%.0f arrivals in some %s, want at least 98 %% of %d less the %.0f that died", fewest, window, due, died)
				}
				if lost < deaths || lost > deaths*int(died) {
					t.Errorf("%d slots were lost with %d that served, want up to %.0f with each", lost, deaths, died)
				}
			})
		})
	}
}

// TestWhoServesFlowsDies: where a bucket has flows or groups, one serves and the others stand by. When it dies, its slots
// are lost, and those until another one looks.
func TestWhoServesFlowsDies(t *testing.T) {
	t.Parallel()
	const rate, roundTrip, dispatchers, deaths, every = 100, 10 * time.Millisecond, 8, 3, 4 * time.Second
	for _, name := range []string{"20_flows", "20_groups"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newPartedWorld(t, rate, roundTrip, rate*(deaths+2)*int(every/time.Second), few[name])
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				var all []*mortal
				for range dispatchers + deaths {
					all = append(all, &mortal{})
				}
				begin := func(m *mortal) {
					client := w.far(t)
					client.AddHook(m) // within those that note what was answered
					running.Go(func() { _ = runDispatcher(ctx, client, w.bucket, func(*shaper.Attempt) {}) })
				}
				for _, m := range all[:dispatchers] {
					begin(m)
				}
				time.Sleep(every) // in a bubble: no time passes
				began := time.Now()
				for n := range deaths {
					server := all[0]
					for _, m := range all {
						if !m.dead.Load() && (server.dead.Load() || m.served.Load() > server.served.Load()) {
							server = m
						}
					}
					server.dead.Store(true)
					begin(all[dispatchers+n])
					time.Sleep(every) // nor here
				}
				given := w.given().Within(began, time.Now())
				stop()
				running.Wait()

				gap := time.Duration(0)
				for i, at := range given[1:] {
					gap = max(gap, time.Duration(at-given[i])*time.Microsecond)
				}
				share := float64(len(given)) / (rate * deaths * every.Seconds())
				t.Logf("%.2f %% of the rate; %s without slots at most; ahead of the rate by at most %s in any window", 100*share, gap, given.Early(rate))
				if share < .95 || gap > time.Second/2 {
					t.Errorf("%.2f %% of the rate, and %s without slots", 100*share, gap)
				}
				if early := given.Early(rate); early >= time.Microsecond {
					t.Errorf("the slots of some window are %s ahead of the rate", early)
				}
			})
		})
	}
}
