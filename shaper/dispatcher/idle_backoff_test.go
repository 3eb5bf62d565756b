package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// An idle loop waits longer each time, never longer than maxBackoff, and never less than a loop that serves.
func TestIdleBackoff(t *testing.T) {
	t.Parallel()
	const whole, atLeast = 40 * time.Millisecond, 3 * time.Millisecond
	var b idleBackoff
	if wait := b.looked(false, whole, atLeast); wait != atLeast || b.ahead(whole) != whole {
		t.Errorf("a loop that serves waits %s and looks %s ahead", wait, b.ahead(whole))
	}
	if wait := b.looked(true, whole, atLeast); wait != atLeast || b.ahead(whole) != whole {
		t.Errorf("after one miss it waits %s and looks %s ahead", wait, b.ahead(whole))
	}
	longest := whole
	for range 100 {
		wait := b.looked(true, whole, atLeast)
		if wait < longest/2 || wait > longest || b.ahead(whole) != whole/idleShare {
			t.Fatalf("%d misses: it waits %s of %s and looks %s ahead", b.misses, wait, longest, b.ahead(whole))
		}
		longest = min(2*longest, maxBackoff)
	}
	must.Equal(t, b.looked(true, whole, time.Minute), time.Minute, "it waits, although the next slot is a minute away")
	if b.woken(); b.ahead(whole) != whole {
		t.Error("a loop that was woken does not look as one that serves")
	}
	if wait := b.looked(true, whole, atLeast); b.serves() || wait > whole {
		t.Errorf("a loop that was woken for nothing serves: %t, and waits %s", b.serves(), wait)
	}
	if wait := b.looked(false, whole, atLeast); wait != atLeast || !b.serves() {
		t.Errorf("a loop that finds slots waits %s", wait)
	}
}

// A claim is idle where others took the slots: not where it is the workers, or the turns of flows, that bound it.
func TestIsIdle(t *testing.T) {
	t.Parallel()
	s := newStepped(t, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }))
	r := s.bucketLoop()
	whole := 16 * r.claims.interval()
	for _, c := range []struct {
		jobs, want int
		taken      bool
		idle       bool
	}{
		{0, 100, true, true}, {3, 100, true, true}, {4, 100, true, false}, {16, 100, true, false},
		{0, 100, false, false}, {3, 100, false, false}, {3, 3, true, false},
	} {
		must.Equal(t, r.claims.isIdle(c.jobs, c.want, c.taken, whole), c.idle, "%d jobs of %d, all slots taken: %t: idle", c.jobs, c.want, c.taken)
	}
	if r.claims.isIdle(1, 100, true, r.claims.interval()) {
		t.Error("one job of a bucket where a horizon has no more is idle")
	}
}

// Drains that find all slots of a horizon taken become idle. One of them takes over when those slots have gone by.
func TestIdleDrains(t *testing.T) {
	t.Parallel()
	flows := rig.Grouped("b", 100)
	flows.Group = nil
	for name, b := range map[string]shaper.Bucket{"plain": rig.Bucket("b", 100), "flows": flows, "groups": rig.Grouped("b", 100)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteppedBucket(t, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), b)
				for i := range 40 {
					job := shaper.Job{Bucket: "b", Payload: []byte("{}")}
					if b.Flow != nil {
						job.Flow = fmt.Sprint("f", i%4)
					}
					if b.Group != nil {
						job.Group = "g"
					}
					must.Get(s.Client.Enqueue(t.Context(), job))(t)
				}
				loops := make([]*bucketLoop, 3)
				for i := range loops {
					loops[i] = s.bucketLoop()
					loops[i].dispatcher = fmt.Sprint("d", i)
					for n := range 3 {
						if i > 0 || n == 0 {
							s.claimFor(loops[i], fmt.Sprint("claim", n), 40)
						}
					}
					must.Equal(t, loops[i].claims.idle.serves(), (i == 0), "dispatcher %d serves", i)
				}
				last := loops[2]
				must.Equal(t, s.Redis.HGet(t.Context(), last.Keys.Pace(), "standbys").Val(), "d1 d2 ", "the standbys are")
				s.Step(time.Second)
				s.forgetClock(last)
				if s.claimFor(last, "again", 40); !last.claims.idle.serves() {
					t.Error("a loop that finds slots is idle")
				}
			})
		})
	}
}

// Where it is the rate of a flow that binds, slots go by that nobody takes: no loop is idle.
func TestNoDrainIsIdleForTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := rig.Grouped("b", 100)
		b.Group, b.Flow.Rate = nil, rig.Rate("5/s")
		s := newSteppedBucket(t, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), b)
		for range 9 {
			must.Get(s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Flow: "f", Payload: []byte("{}")}))(t)
		}
		r := s.bucketLoop()
		s.claim(r, "first") // gets the first slot, 10 ms away
		s.Step(15 * time.Millisecond)
		s.forgetClock(r)
		s.claim(r, "second") // gets one 195 ms away, the last one within the horizon
		if left := s.Redis.LLen(t.Context(), r.Keys.Queue("f")).Val(); left != 7 || r.claims.idle.misses > 0 {
			t.Errorf("%d of 9 jobs are left; %d misses", left, r.claims.idle.misses)
		}
	})
}

// A loop that is alone is not idle. It looks soon after its own claim, and its horizon ends between two turns that follow each other: the slots
// that it has itself, and those that pass before a turn, are not taken by others. In a bubble: a machine that is slow would have the loop give jobs
// back whose slots had passed.
func TestNoDrainIsIdleForItsOwnSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := rig.Grouped("b", 200)
		b.Group, b.Flow.Rate = nil, rig.Rate("20/s")
		s := newSteppedBucket(t, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), b)
		for i := range 40 {
			must.Get(s.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Flow: fmt.Sprint("f", i%4), Payload: []byte("{}")}))(t)
		}
		r := s.bucketLoop()
		left := func() (n int64) {
			for i := range 4 {
				n += s.Redis.LLen(t.Context(), r.Keys.Queue(fmt.Sprint("f", i))).Val()
			}
			return n
		}
		s.claimFor(r, "first", 40)
		before := left()
		for i, step := range []time.Duration{10, 3, 7, 35} {
			s.Step(step * time.Millisecond)
			s.forgetClock(r)
			s.claimFor(r, fmt.Sprint("claim", i), 40)
			t.Logf("%d jobs are left, %d misses", left(), r.claims.idle.misses)
			if r.claims.idle.misses > 0 {
				t.Errorf("%d misses after claim %d, %d jobs are left", r.claims.idle.misses, i, left())
			}
		}
		if left() == before {
			t.Error("no claim but the first one brought jobs")
		}
	})
}

// claimFor claims for so many workers.
func (s *stepped) claimFor(r *bucketLoop, claim string, want int) {
	s.T.Helper()
	must.Get(r.claims.claim(s.T.Context(), r.dispatcher+claim, want))(s.T)
}
