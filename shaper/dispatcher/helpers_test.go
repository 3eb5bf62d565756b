package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// TestHelpersRunWhileNeeded: an idle bucket has no goroutines beside its loop. While a job is in flight, or one was handed over, they run, and
// extend its lease; they do so again for the next job.
func TestHelpersRunWhileNeeded(t *testing.T) {
	t.Parallel()
	for _, handsOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const lease = 3 * time.Second
			mini := miniredis.NewMiniRedis()
			mini.ClockTTL(true)
			t.Cleanup(mini.Close)
			conn, all := rig.BubbleClient(t, mini.Dial), []shaper.Bucket{rig.Bucket("b", 10)}
			client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: all}))(t)
			end := make(chan shaper.Outcome, 1)
			left := func(context.Context) (shaper.Outcome, bool, error) {
				select {
				case outcome := <-end:
					return outcome, true, nil
				default:
					return shaper.Outcome{}, false, nil
				}
			}
			worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
				if handsOver {
					return shaper.HandedOver(left)
				}
				return <-end
			})
			d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: rig.Workers(all, worker), Lease: lease, Enqueue: client.Enqueue}))(t)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			<-time.After(2 * lease)
			r := (*d.loops.Load())[0]
			want := func(when string, heartbeats, asks bool) {
				t.Helper()
				synctest.Wait()
				if heartbeat, ask, tell := runs(&r.held.extender), runs(&r.deliveries.handovers.asks), runs(&r.callbacks.moves); heartbeat != heartbeats || ask != asks || tell {
					t.Errorf("%s (hands over: %t): heartbeat runs: %t, hand-over look: %t, callbacks: %t", when, handsOver, heartbeat, ask, tell)
				}
			}
			want("idle", false, false)
			for _, id := range []string{"first", "second"} {
				must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: id, Payload: []byte("{}")}))(t)
				for range 5 {
					<-time.After(lease)
					want(id+" in flight", true, handsOver)
					score, err := conn.ZScore(t.Context(), r.Keys.Leases(), id).Result()
					if left := time.Until(time.UnixMicro(int64(score))); err != nil || left < lease/2 {
						t.Errorf("job %s: its lease ends in %s: %v", id, left, err)
					}
				}
				end <- shaper.Done(200)
				<-time.After(2 * lease)
				want(id+" is done", false, false)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func runs(h *helper) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs
}

// TestHelperMissesNoWork: work that comes while a helper finds nothing to do begins it again, and a helper whose context has ended does not begin.
func TestHelperMissesNoWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		within, end := context.WithCancel(t.Context())
		work, done := newToken(), 0
		h := &helper{within: within}
		h.do = func(context.Context) {
			for !h.ends(func() bool { return len(work) == 0 }) {
				<-work
				done++
			}
		}
		for range 3 {
			work.put()
			work.put() // one that is there already is enough
			h.begin()
			h.begin()
			synctest.Wait()
		}
		if done != 3 || runs(h) {
			t.Errorf("done %d times, want 3; the helper runs: %t", done, runs(h))
		}
		end()
		work.put()
		h.begin()
		h.wait()
		must.Equal(t, done, 3, "a helper began after the end")
	})
}
