package scripts_test

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// What the model of flows has found, each on its own.

func TestFlowWithoutAName(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.putIn("", 1, 0, "j")
		r.pass(second)
		must.Equal(t, r.drain(ask{}).ids(), "j", "claimed")
	})
}

// A bucket whose slots are further apart than anybody looks ahead begins, too.
func TestFlowsOfASlowBucketBegin(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1, ratePer: 10 * second}, flowSettings{})
		r.putIn("f", 3, 0, "j")
		if c := r.drain(ask{}); len(c.jobs) != 0 || c.next < c.now+9*second {
			t.Errorf("claimed %q at once, the next in %d µs", c.ids(), c.next-c.now)
		}
		r.pass(10 * second)
		must.Equal(t, r.drain(ask{}).ids(), "j", "claimed")
	})
}

// A flow that may have no more in flight, and gets a job for later meanwhile, goes on with what
// waits as soon as it may.
func TestHeldFlowGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(r *rig, l lease){
		"settled": func(r *rig, l lease) { r.settle(outcome{lease: l, result: done}) },
		"lost":    func(r *rig, l lease) { r.end(l.id); r.sweep(sweep{}) },
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configureFlows(settings{}, flowSettings{inFlight: 1})
				r.putIn("f", 3, 0, "flying", "waits")
				r.pass(second)
				c := r.drain(ask{})
				must.Be(t, c.ids(), "flying", "claimed")
				r.enqueue(nil, entry{id: "later", flow: "f", due: "+3600000000"})
				release(r, c.jobs[0])
				r.pass(second)
				if c := r.drain(ask{}); len(c.jobs) != 1 {
					t.Errorf("claimed %q", c.ids())
				}
			})
		})
	}
}

// The clock of the server steps back by an hour while a flow with a rate is held: it does not wait
// for the clock.
func TestFlowWithARateAndAStepBack(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{inFlight: 1, rateCount: 10})
		r.putIn("f", 3, 0, "flying", "waits")
		r.pass(second)
		c := r.drain(ask{})
		r.pass(-3600 * second)
		r.reserve(1, 1000)
		r.settle(outcome{lease: c.jobs[0], result: done})
		r.pass(second)
		must.Equal(t, r.drain(ask{}).ids(), "waits", "claimed")
	})
}

// Nor does one to which something came while nothing was reserved.
func TestStepBackOfAPausedBucket(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.reserve(1, 1000)
		r.pause()
		r.pass(3600 * second)
		r.reserve(1, 1000)
		r.putIn("f", 3, 0, "j")
		r.pass(-1800 * second)
		r.resume()
		r.pass(second)
		must.Equal(t, r.drain(ask{}).ids(), "j", "claimed")
	})
}

// The id that a cancelled job has left in the list of a flow is no job of that flow, also
// where its job is of the flow without a name.
func TestIDUsedAgainInTheFlowWithoutAName(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{dedupe: -1}, flowSettings{})
		r.putIn("f", 3, 0, "j")
		r.cancelDeep("j")
		r.putIn("", 3, 0, "j")
		r.pass(second)
		c := r.claimFlows(ask{}, reserved{flows: []string{"f"}, turns: []any{"f", int64(0)}})
		if c.ids() != "" || r.counts("") != "1 0 0" || r.counts("f") != "" {
			t.Errorf("claimed %q; counters %q and %q", c.ids(), r.counts(""), r.counts("f"))
		}
		must.Equal(t, r.drain(ask{}).ids(), "j", "claimed")
	})
}

// A purge that the sweeper goes on with, which need not know the flow, keeps a job for later whose
// id a cancelled one has left in the list.
func TestPurgeOfAFlowThatGoesOnKeepsLater(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{dedupe: -1}, flowSettings{})
		r.putIn("f", 3, 0, "first", "j")
		r.cancelDeep("j")
		r.enqueue(nil, entry{id: "j", flow: "f", due: "+60000000"})
		if p := r.purge(purge{id: "p", flow: "f", keepLater: true, atMost: 1}); p.removed != 1 || p.left != 1 {
			t.Fatalf("purged %+v", p)
		}
		if p := r.purge(purge{}); p.removed != 0 || p.left != 0 {
			t.Errorf("gone on: %+v", p)
		}
		must.Equal(t, r.job("j").state, isScheduled, "the job for later is in state")
	})
}
