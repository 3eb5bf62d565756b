package shaper

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// stepped is a bucket on a server whose clock stands still until the test sets it, and a dispatcher of it.
type stepped struct {
	*bench
	d *Dispatcher
}

func newStepped(t *testing.T, worker Worker) *stepped {
	t.Helper()
	return newSteppedBucket(t, worker, testBucket("b", 100))
}

func newSteppedBucket(t *testing.T, worker Worker, b Bucket) *stepped {
	t.Helper()
	return steppedOn(t, newBench(t, b), worker)
}

func steppedOn(t *testing.T, s *bench, worker Worker) *stepped {
	t.Helper()
	d, err := NewDispatcher(DispatcherConfig{
		Redis: s.redis, Buckets: []Bucket{s.bucket}, Workers: map[string]Worker{"test": worker}, Lease: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &stepped{s, d}
}

// drain returns what a process that has the dispatcher's id drains with.
func (s *stepped) drain() *drain {
	life, kill := context.WithCancel(context.WithoutCancel(s.t.Context()))
	r := newDrain(s.d, s.d.store.buckets["b"], life)
	s.t.Cleanup(func() {
		r.interrupt()
		r.deliveries.Wait()
		r.settler.Wait()
		kill()
	})
	return r
}

func (s *stepped) claim(r *drain, id string) {
	s.t.Helper()
	if _, err := r.claim(s.t.Context(), id, 10); err != nil {
		s.t.Fatal(err)
	}
}

// lease puts a job of a flow in flight, and returns its lease.
func (s *stepped) lease(id, flow string) *leased {
	s.t.Helper()
	return &leased{Attempt: Attempt{ID: id, Flow: flow}, mark: s.put(id, flow, StateInFlight), epoch: 1, claim: "c"}
}

// A claim that saw the clock step forwards knows that leases only look as if
// they had run out: the next sweep takes none back.
func TestStepForwardsTakesNoLeaseBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := newWaiting()
		s := newStepped(t, worker)
		r := s.drain()
		s.enqueue("a")
		s.claim(r, "first")
		<-worker.began
		deadline := s.now.Add(r.lease).UnixMicro()

		s.step(time.Hour)
		s.claim(r, "second")
		r.tend(t.Context(), &sweepWatch{nextAudit: time.Now().Add(time.Hour)}, sight{deadline: deadline})
		s.wantState(StateInFlight, "a")
	})
}

// After an outage of Redis leases have run out of which the holders live: they
// get one heartbeat. It may be shorter than the time between two patrols.
func TestOutageTakesNoLeaseBack(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(r *drain){
		"calls failed":  func(r *drain) { r.outage.since = time.Now().Add(-r.lease) },
		"a call waited": func(r *drain) { r.outage.worked(t.Context(), time.Now().Add(-r.lease), r.lease) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				worker := newWaiting()
				s := newStepped(t, worker)
				r := s.drain()
				s.enqueue("a")
				s.claim(r, "first")
				<-worker.began
				if err := s.redis.ZAdd(t.Context(), r.keys.leases(), redis.Z{Member: "a", Score: 1}).Err(); err != nil {
					t.Fatal(err)
				}
				watch := &sweepWatch{nextAudit: time.Now().Add(time.Hour)}
				outage(r)
				r.outage.worked(t.Context(), time.Now(), r.lease)
				r.tend(t.Context(), watch, sight{deadline: 1})
				s.wantState(StateInFlight, "a")

				r.outage.long = time.Time{} // long ago
				r.tend(t.Context(), &sweepWatch{nextAudit: time.Now().Add(time.Hour)}, sight{deadline: 1})
				s.wantState(StateQueued, "a")
			})
		})
	}
}

// A step that a sweep saw first counts for the next claim.
func TestStepSeenBySweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := newWaiting()
		s := newStepped(t, worker)
		r := s.drain()
		s.claim(r, "first")
		s.step(time.Minute)
		if err := r.sweep(t.Context(), &sweepWatch{}, r.clock.latest(time.Now()), false); err != nil {
			t.Fatal(err)
		}
		s.enqueue("a")
		s.claim(r, "second")
		r.settler.Wait()
		s.wantState(StateQueued, "a")
		if wait := time.Until(r.pause); wait <= 0 {
			t.Errorf("the next claim may come at once: %s", wait)
		}
	})
}

// No wake-up shortens the pause after a step forwards.
func TestPauseIsNotCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worker := newWaiting()
		s := newStepped(t, worker)
		r := s.drain()
		s.enqueue("a")
		r.pause = time.Now().Add(maxHorizon)
		r.nudge()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.loop(ctx) }()
		<-worker.began
		if early := time.Until(r.pause); early > 0 {
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
				s := newStepped(t, newWaiting())
				lost, r := s.drain(), s.drain()
				s.claim(r, "before")
				s.enqueue("a", "b")
				s.claim(lost, "lost")
				s.step(-back)
				s.claim(r, "lost")
				r.settler.Wait()
				s.wantState(StateQueued, "a", "b")
			})
		})
	}
}
