package scripts_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// drainUntil claims until nothing goes before the horizon, and returns what went, and in how many claims.
func (r *rig) drainUntil(want, horizon int64) (jobs []lease, claims int) {
	r.t.Helper()
	for ; ; claims++ {
		c := r.drain(ask{want: want, horizon: horizon})
		if len(c.jobs) == 0 {
			return jobs, claims
		}
		jobs = append(jobs, c.jobs...)
	}
}

// A claim with plain turns hands out the same jobs at the same times as one without, and leaves the same. The other bucket has none: it is
// said to have ids of cancelled jobs in its lists, although there are none.
func TestPlainTurns(t *testing.T) {
	onBothForLong(t, func(t *testing.T, base *rig) {
		flows := []string{"a", "b", "c", "d"}
		for name, c := range map[string]struct {
			first  []entry      // before three of each flow
			alone  bool         // no jobs but these
			want   int64        // of a claim, 4 if it is 0
			own    flowSettings // of d
			gone   string       // a job whose body is lost
			settle int          // how the first three that leave end, 0 not at all
		}{
			"plain":               {},
			"of another priority": {first: []entry{{flow: "b", priority: 1}, {flow: "c", priority: 4}}},
			"delayed":             {first: []entry{{flow: "b", due: "+35000"}}},
			"with a rate":         {own: flowSettings{rateCount: 19}},
			"with a weight":       {own: flowSettings{weight: 2}},
			"one with nothing": {want: 3, alone: true, gone: "j1", own: flowSettings{weight: 1}, first: []entry{{flow: "a"}, {flow: "b"}, {flow: "d"}, {flow: "a"},
				{flow: "a"}, {flow: "a"}, {flow: "d"}, {flow: "d"}, {flow: "d"}}},
			"without a body":     {gone: "j5"},
			"returned":           {settle: returned},
			"tried again":        {settle: retry},
			"one with more jobs": {first: []entry{{flow: "a"}, {flow: "a"}, {flow: "a"}}},
			"one with a later turn": {want: 2, alone: true, first: []entry{{flow: "b", due: "+65000"}, {flow: "a"}, {flow: "a"}, {flow: "a"}, {flow: "a"}, {flow: "a"},
				{flow: "a"}, {flow: "a"}, {flow: "a"}}},
		} {
			var went, left [2]string
			var claims [2]int
			for i := range 2 {
				r := base.fresh(t, fmt.Sprint("b", nextClaim()))
				r.configureFlows(settings{rateCount: 100}, flowSettings{})
				r.setFlow("d", c.own)
				if i == 1 {
					r.hset("settings", "leftovers", 1)
				}
				start, n := r.now(), 0
				put := func(e entry) {
					e.id = fmt.Sprint("j", n)
					n++
					r.enqueue(nil, e)
					r.pass(1) // no two flows have the same turn
				}
				for _, e := range c.first {
					put(e)
				}
				for range 3 {
					for _, flow := range flows {
						if !c.alone {
							put(entry{flow: flow})
						}
					}
				}
				r.hdel("body", c.gone)
				jobs, before := r.drainUntil(cmp.Or(c.want, 4), 35_000)
				for _, job := range jobs[:3] {
					if c.settle != 0 {
						r.settle(outcome{lease: job, result: c.settle, delay: 20_000})
						r.pass(1)
					}
				}
				more, after := r.drainUntil(cmp.Or(c.want, 4), 100_000)
				claims[i] = before + after
				for _, job := range append(jobs, more...) {
					went[i] += fmt.Sprint(job.id, " of ", job.flow, " at ", job.slot-start, ", epoch ", job.epoch, ", number ", job.number, "; ")
				}
				for _, flow := range flows {
					list := r.elements(queueKey + flow)
					left[i] += fmt.Sprint(flow, ": ", r.counts(flow), " ", list)
					if len(list) > 0 {
						left[i] += fmt.Sprint(" at ", r.turn(flow)-start)
					}
					left[i] += "; "
				}
			}
			if claims[0] > claims[1]+1 {
				t.Errorf("%s: plain in %d claims, other in %d", name, claims[0], claims[1])
			}
			if went[0] != went[1] || left[0] != left[1] {
				t.Errorf("%s:\nplain %s\nother %s\nplain left %s\nother left %s", name, went[0], went[1], left[0], left[1])
			}
		}
	})
}

// No slot passes while a job waits, whichever flows are plain, and each flow that has jobs gets its share.
func TestPlainTurnsLoseNoSlot(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("b", nextClaim()))
			r.configureFlows(settings{rateCount: 100}, flowSettings{})
			flows, jobs, last := []string{"a", "b", "c", "d", "e"}, 0, r.now()
			waiting, inFlight := map[string]int{}, map[string]int{}
			for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
				for range rapid.IntRange(0, 12).Draw(rt, "jobs") {
					e := entry{id: fmt.Sprint("j", jobs), flow: rapid.SampledFrom(flows).Draw(rt, "flow"), priority: rapid.SampledFrom([]int{3, 3, 3, 1, 4}).Draw(rt, "priority")}
					jobs++
					waiting[e.flow]++
					r.enqueue(nil, e)
				}
				want, horizon := rapid.Int64Range(1, 6).Draw(rt, "want"), rapid.SampledFrom([]int64{20_000, 100_000, 200_000}).Draw(rt, "horizon")
				total, had := 0, map[string]int{}
				for flow, n := range waiting {
					total += n
					had[flow] = n
				}
				leases, _ := r.drainUntil(want, horizon)
				got := map[string]int{}
				for i, job := range leases {
					if i > 0 && job.slot != leases[i-1].slot+10_000 {
						rt.Fatalf("after %s at %d goes %s at %d", leases[i-1].id, leases[i-1].slot-r.now(), job.id, job.slot-r.now())
					}
					waiting[job.flow]--
					inFlight[job.flow]++
					got[job.flow]++
				}
				if n := len(leases); n > 0 {
					last = leases[n-1].slot
				}
				if next := max(last+10_000, r.now()); len(leases) < total && next <= r.now()+horizon {
					rt.Fatalf("%d of %d went, and a slot %d from now is free", len(leases), total, next-r.now())
				}
				for _, one := range flows {
					for _, other := range flows {
						if had[one] > got[one] && got[other] > got[one]+2 {
							rt.Fatalf("flow %s has %d of %d, and %s has %d", one, got[one], had[one], other, got[other])
						}
					}
				}
				for _, job := range leases {
					result := rapid.SampledFrom([]int{0, done, done, returned}).Draw(rt, "result")
					if result == 0 {
						continue
					}
					r.settle(outcome{lease: job, result: result})
					inFlight[job.flow]--
					if result == returned {
						waiting[job.flow]++
					}
				}
				for _, flow := range flows {
					want := ""
					if waiting[flow]+inFlight[flow] > 0 {
						want = fmt.Sprint(waiting[flow]+inFlight[flow], " 0 ", inFlight[flow])
					}
					must.Be(rt, r.counts(flow), want, "flow %s counts", flow)
					if on := slices.Contains(r.onCalendar(), flow); waiting[flow] > 0 && !on {
						rt.Fatalf("flow %s has %d jobs and no turn", flow, waiting[flow])
					}
				}
				r.pass(rapid.SampledFrom([]int64{1, 10_000, 100_000, 300_000}).Draw(rt, "time"))
			}
		})
	})
}

func (r *rig) onCalendar() []string {
	r.t.Helper()
	flows := r.members("due:")
	return flows
}

// Plain flows leave an answer that is full as it is.
func TestPlainTurnsInAFullAnswer(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.hset("flow_settings", "c", "- - - - - - -\n"+strings.Repeat("x", 500))
		for _, flow := range []string{"c", "a", "b"} {
			r.enqueue(nil, entry{id: "of-" + flow, flow: flow})
			r.pass(1)
		}
		largest := must.Get(r.c.HGet(r.ctx, r.key("pace"), "largest").Int64())(r.t)
		for _, want := range []string{"of-c", "of-a of-b", ""} {
			must.Be(t, r.drain(ask{want: 3, bytes: 3 * largest}).ids(), want, "drain")
		}
	})
}
