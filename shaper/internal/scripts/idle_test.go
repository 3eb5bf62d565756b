package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// doneAll delivers all that waits.
func (r *rig) doneAll() {
	r.t.Helper()
	for {
		c := r.drain(ask{})
		if len(c.jobs) == 0 {
			return
		}
		for _, job := range c.jobs {
			r.settle(outcome{lease: job, result: done})
		}
	}
}

// enter enqueues a job to each of some flows, and says how many of them got in. In a bucket with groups each
// flow has one of its own.
func (r *rig) enter(flows ...string) (in int) {
	r.t.Helper()
	jobs := make([]entry, len(flows))
	for i, flow := range flows {
		jobs[i] = entry{id: fmt.Sprint("j", nextClaim()), flow: flow}
		if r.hasGroups {
			jobs[i].group = flow
		}
	}
	for _, a := range r.enqueue(nil, jobs...) {
		if a.code == 1 {
			in++
		} else if a.code != 11 && a.code != 13 {
			r.t.Fatalf("enqueue: code %d", a.code)
		}
	}
	return in
}

// onBothLevels runs a test with a rate of flows, and of groups.
func onBothLevels(t *testing.T, rated flowSettings, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, level := range []string{"flows", "groups", "both"} {
		t.Run(level, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				unrated := flowSettings{maxFlows: rated.maxFlows}
				switch level {
				case "flows":
					r.configureFlows(settings{}, rated)
				case "groups":
					r.configureGroups(settings{}, unrated, rated)
				case "both":
					r.configureGroups(settings{}, rated, rated)
				}
				test(t, r)
			})
		})
	}
}

// Flows and groups that are idle are forgotten as fast as new ones come: none is refused while the bucket is empty,
// without any sweep. What is noted of them does not grow, and in the end nothing is left.
func TestIdleFlowsMakeRoom(t *testing.T) {
	const most = 20
	onBothLevels(t, flowSettings{rateCount: 1, maxFlows: most}, func(t *testing.T, r *rig) {
		for round := range 12 {
			names := make([]string, most)
			for i := range names {
				names[i] = fmt.Sprint("f", round, "-", i)
			}
			if in := r.enter(names[:most/2]...) + r.enter(names[most/2:]...); in != most {
				t.Fatalf("round %d: %d of %d got in", round, in, most)
			}
			r.doneAll()
			if b, noted := r.inspect(), r.zcard("idle"); b.flows > most || b.groups > most || noted > 2*most {
				t.Fatalf("round %d: %d flows, %d groups, %d are noted", round, b.flows, b.groups, noted)
			}
			r.pass(2 * second)
		}
		r.audit()
		if b, noted := r.inspect(), r.exists("idle"); b.flows+b.groups+noted != 0 {
			t.Errorf("left: %d flows, %d groups, %d index", b.flows, b.groups, noted)
		}
	})
}

// A flow whose last departure holds back the next one is not forgotten, and keeps its place.
func TestFlowsAreKeptForTheirRate(t *testing.T) {
	onBothLevels(t, flowSettings{rateCount: 1, ratePer: 60 * second, maxFlows: 2}, func(t *testing.T, r *rig) {
		must.Be(t, r.enter("a", "b"), 2, "got in")
		r.doneAll()
		r.pass(50 * second)
		must.Equal(t, r.enter("c"), 0, "a flow more than there may be got in")
		r.enter("a") // its time has not come
		if c := r.drain(ask{}); len(c.jobs) != 0 {
			t.Errorf("%q departed within the interval of its flow", c.ids())
		}
		r.pass(15 * second) // that of b has come, and a has a job again
		must.Equal(t, r.enter("c", "d"), 1, "got in")
		must.Equal(t, r.enter("a"), 1, "a flow with jobs was forgotten")
		r.pass(60 * second)
		r.doneAll()
		r.pass(120 * second)
		r.doneAll()
		r.pass(120 * second)
		if in := r.enter("a", "x"); in != 2 { // one of those that are idle is in the batch itself
			t.Errorf("%d got in, want 2", in)
		}
		must.Equal(t, r.enter("y"), 0, "a flow more than there may be got in")
	})
}

// A flow that is slower or faster by now is forgotten at the time that holds now.
func TestFlowsAreForgottenByTheRateOfNow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{rateCount: 1, maxFlows: 1})
		r.enter("a")
		r.doneAll()
		r.setFlow("a", flowSettings{rateCount: 1, ratePer: 60 * second})
		r.pass(30 * second)
		must.Equal(t, r.enter("b"), 0, "a was forgotten before its time")
		if r.pass(15 * second); r.enter("b") != 0 {
			t.Error("a was forgotten before its time")
		}
		if r.pass(20 * second); r.enter("b") != 1 {
			t.Error("a was not forgotten")
		}
	})
}

// Where many flows have jobs again that were noted as idle, those that are idle are found behind them.
func TestIdleFlowsBehindOthers(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const most = 300
		r.configureFlows(settings{rateCount: 10_000}, flowSettings{rateCount: 1, maxFlows: most})
		names := make([]string, most-1)
		for i := range names {
			names[i] = fmt.Sprint("f", i)
		}
		r.enter(names...)
		r.doneAll()
		r.enter("idle")
		r.doneAll()
		r.enter(names...)
		r.pass(5 * second)
		refused := 0
		for ; r.enter("new") == 0; refused++ {
			if refused > most/100 {
				t.Fatalf("refused %d times while a flow is idle", refused)
			}
		}
	})
}
