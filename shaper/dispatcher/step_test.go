package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// stepped is a bucket on a server whose clock stands still until the test sets it, and a dispatcher of it.
type stepped struct {
	*rig.Bench
	d *Dispatcher
}

func newStepped(t *testing.T, worker shaper.Worker) *stepped {
	t.Helper()
	return newSteppedBucket(t, worker, rig.Bucket("b", 100))
}

func newSteppedBucket(t *testing.T, worker shaper.Worker, b shaper.Bucket) *stepped {
	t.Helper()
	return steppedOn(t, rig.NewBench(t, b), worker)
}

func steppedOn(t *testing.T, s *rig.Bench, worker shaper.Worker) *stepped {
	t.Helper()
	d := must.Get(New(Config{
		Redis: s.Redis, Buckets: []shaper.Bucket{s.Bucket}, Workers: rig.Workers([]shaper.Bucket{s.Bucket}, worker), Lease: 3 * time.Second,
	}))(t)
	return &stepped{s, d}
}

// bucketLoop returns what drains the bucket.
func (s *stepped) bucketLoop() *bucketLoop {
	life, kill := context.WithCancel(context.WithoutCancel(s.T.Context()))
	r := newBucketLoop(s.d, s.d.store.Known("b"), life)
	s.T.Cleanup(func() {
		r.held.interrupt()
		r.deliveries.underWay.Wait()
		r.settler.queue.Wait()
		kill()
	})
	return r
}

func (s *stepped) claim(r *bucketLoop, id string) {
	s.T.Helper()
	must.Get(r.claims.claim(s.T.Context(), id, 10))(s.T)
}

// forgetClock has a loop know nothing of the clock of Redis and of its round trips: a call that a busy machine delays is no call over a slow
// link, and looks no further ahead for it, and a Step is no step of the clock.
func (s *stepped) forgetClock(r *bucketLoop) {
	r.clock.mu.Lock()
	defer r.clock.mu.Unlock()
	r.clock.known, r.clock.rttCount = false, 0
}

// lease puts a job of a flow in flight, and returns its lease.
func (s *stepped) lease(id, flow string) *leased {
	s.T.Helper()
	return &leased{Attempt: shaper.Attempt{ID: id, Flow: flow}, mark: s.Put(id, flow, shaper.StateInFlight), epoch: 1, claim: "c"}
}

// A claim that saw the clock step forwards knows that leases only look as if
// they had run out: the next sweep takes none back.
func TestStepForwardsTakesNoLeaseBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := rig.NewWaiting()
		s := newStepped(t, worker)
		r := s.bucketLoop()
		s.Enqueue("a")
		s.claim(r, "first")
		<-worker.Began
		deadline := s.Now.Add(r.lease).UnixMicro()

		s.Step(time.Hour)
		s.claim(r, "second")
		patrolOf(r).tend(t.Context(), findings{deadline: deadline})
		s.WantState(shaper.StateInFlight, "a")
	})
}

// After an outage of Redis leases have run out of which the holders live: they
// get one heartbeat. It may be shorter than the time between two patrols.
func TestOutageTakesNoLeaseBack(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(r *bucketLoop){
		"calls failed":  func(r *bucketLoop) { r.outage.since = time.Now().Add(-r.lease) },
		"a call waited": func(r *bucketLoop) { r.outage.worked(t.Context(), time.Now().Add(-r.lease), r.lease) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				worker := rig.NewWaiting()
				s := newStepped(t, worker)
				r := s.bucketLoop()
				s.Enqueue("a")
				s.claim(r, "first")
				<-worker.Began
				must.OK(t, s.Redis.ZAdd(t.Context(), r.Keys.Leases(), redis.Z{Member: "a", Score: 1}).Err())
				watch := patrolOf(r)
				outage(r)
				r.outage.worked(t.Context(), time.Now(), r.lease)
				watch.tend(t.Context(), findings{deadline: 1})
				s.WantState(shaper.StateInFlight, "a")

				r.outage.long = time.Time{} // long ago
				patrolOf(r).tend(t.Context(), findings{deadline: 1})
				s.WantState(shaper.StateQueued, "a")
			})
		})
	}
}

// A step that a sweep saw first counts for the next claim.
func TestStepSeenBySweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := rig.NewWaiting()
		s := newStepped(t, worker)
		r := s.bucketLoop()
		s.claim(r, "first")
		s.Step(time.Minute)
		must.OK(t, patrolOf(r).sweep(t.Context(), r.clock.latest(time.Now()), false))
		s.Enqueue("a")
		s.claim(r, "second")
		r.settler.queue.Wait()
		s.WantState(shaper.StateQueued, "a")
		if wait := time.Until(r.claims.pause); wait <= 0 {
			t.Errorf("the next claim may come at once: %s", wait)
		}
	})
}

// No wake-up shortens the pause after a step forwards.
func TestPauseIsNotCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := rig.NewWaiting()
		s := newStepped(t, worker)
		r := s.bucketLoop()
		s.Enqueue("a")
		r.claims.pause = time.Now().Add(maxHorizon)
		r.claims.wake.put()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.claims.loop(ctx, r.shared) }()
		<-worker.Began
		if early := time.Until(r.claims.pause); early > 0 {
			t.Errorf("a delivery came %s before the end of the pause", early)
		}
		stop()
		<-ended
	})
}

// The reply of a claim gets lost, the clock steps back, and the same claim is
// answered again: its slots are not waited for.
func TestReplayAfterAStepBackwards(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{5 * time.Second, time.Hour} {
		t.Run(fmt.Sprint(back), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStepped(t, rig.NewWaiting())
				lost, r := s.bucketLoop(), s.bucketLoop()
				lost.dispatcher = r.dispatcher
				s.claim(r, "before")
				s.Enqueue("a", "b")
				s.claim(lost, "lost")
				s.Step(-back)
				s.claim(r, "lost")
				r.settler.queue.Wait()
				s.WantState(shaper.StateQueued, "a", "b")
			})
		})
	}
}
