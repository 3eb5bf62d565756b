package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
)

// named makes n ids that begin alike.
func named(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return ids
}

// flowsOf are the first letters of the ids.
func flowsOf(c claimed) string {
	var s strings.Builder
	for _, job := range c.jobs {
		s.WriteByte(job.id[0])
	}
	return s.String()
}

func TestFlowsTakeTurns(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 100}, flowSettings{})
		r.putIn("a", 3, 0, named("a", 500)...)
		r.putIn("b", 3, 0, named("b", 5)...)
		r.putIn("c", 3, 0, named("c", 2)...)
		r.claimFlows(ask{}, reserved{}) // the pace begins
		r.pass(second)
		var order string
		for range 10 {
			c := r.drain(ask{horizon: 50_000})
			order += flowsOf(c)
			r.pass(50_000)
		}
		if !strings.HasPrefix(order, "abcabcabababaaaa") {
			t.Errorf("turns %q", order)
		}
		must.Equal(t, r.flowState("c"), stored.Flow{Unfinished: 2, InFlight: 2, Filled: "."}.String(), "c")
		must.Equal(t, r.calendar(), "a", "in the turn queue")
	})
}

func TestFlowWeights(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.setFlow("a", flowSettings{weight: 3})
		r.putIn("a", 3, 0, named("a", 300)...)
		r.putIn("b", 3, 0, named("b", 300)...)
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		var order string
		for len(order) < 100 {
			order += flowsOf(r.drain(ask{horizon: 7_000})) // turns do not end with claims
			r.pass(7_000)
		}
		if a := strings.Count(order[:100], "a"); a < 74 || a > 76 {
			t.Errorf("a had %d of 100: %s", a, order)
		}
	})
}

func TestFlowRate(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{rateCount: 10, ratePer: second})
		r.setFlow("b", flowSettings{rateCount: 100, ratePer: second, burst: 3})
		for _, flow := range []string{"a", "b", "c"} {
			r.putIn(flow, 3, 0, named(flow, 100)...)
		}
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		slots := map[byte][]int64{}
		for range 40 {
			for _, job := range r.drain(ask{}).jobs {
				slots[job.id[0]] = append(slots[job.id[0]], job.slot)
			}
			r.pass(25_000)
		}
		for flow, want := range map[byte]struct{ interval, burst, least int64 }{'a': {100_000, 1, 10}, 'b': {10_000, 3, 99}, 'c': {100_000, 1, 10}} {
			got := slots[flow]
			if int64(len(got)) < want.least {
				t.Errorf("flow %c: %d departures", flow, len(got))
			}
			for i := int(want.burst); i < len(got); i++ {
				if d := got[i] - got[i-int(want.burst)]; d < want.interval {
					t.Errorf("flow %c: departures %d and %d are %d apart", flow, i, i-int(want.burst), d)
				}
			}
		}
		if !slices.IsSorted(slots['b']) {
			t.Errorf("slots %v", slots['b'])
		}
	})
}

// A flow with as many in flight as it may is off the calendar, and delays nobody.
func TestFlowInFlight(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{inFlight: 2})
		r.setFlow("b", flowSettings{inFlight: 1})
		r.putIn("a", 3, 0, named("a", 5)...)
		r.putIn("b", 3, 0, named("b", 5)...)
		r.putIn("c", 3, 0, named("c", 1)...)
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		if c := r.drain(ask{}); c.ids() != "a0 b0 c0 a1" || c.next != 0 {
			t.Errorf("claimed %q, next %d", c.ids(), c.next)
		}
		must.Equal(t, r.calendar(), "", "in the turn queue")
	})
}

func TestPausedFlow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.setFlow("a", flowSettings{paused: 77})
		r.putIn("a", 3, 0, named("a", 5)...)
		r.putIn("b", 3, 0, named("b", 2)...)
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		if c := r.drain(ask{}); c.ids() != "b0 b1" || r.calendar() != "" {
			t.Errorf("claimed %q, in the turn queue %q", c.ids(), r.calendar())
		}
	})
}

// What was reserved and not claimed comes again after a second.
func TestReservationsEnd(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.putIn("a", 3, 0, "a0")
		r.putIn("b", 3, 0, "b0")
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		if of := r.reserve(1, 20_000); fmt.Sprint(of.flows) != "[a]" {
			t.Fatalf("reserved %v", of.flows)
		}
		if of := r.reserve(9, 20_000); fmt.Sprint(of.flows) != "[b]" {
			t.Fatalf("reserved %v", of.flows)
		}
		if of := r.reserve(9, 20_000); len(of.flows) != 0 || of.next < of.now+700_000 || of.next > of.now+second {
			t.Fatalf("reserved %v, next in %d", of.flows, of.next-of.now)
		}
		r.pass(second)
		must.Equal(t, r.drain(ask{}).ids(), "a0 b0", "claimed")
	})
}

// A paused bucket, and one that is full in flight, leave everybody's turn as it is.
func TestTurnsAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.putIn("a", 3, 0, "a0")
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		before := must.Get(r.c.ZScore(r.ctx, r.key("due:"), "a").Result())(r.t)
		of := r.reserve(9, 20_000)
		r.pause()
		if c := r.claimFlows(ask{}, of); len(c.jobs) != 0 || c.next != 0 {
			t.Errorf("claimed %v", c)
		}
		if after, _ := r.c.ZScore(r.ctx, r.key("due:"), "a").Result(); after != before {
			t.Errorf("the turn was %f and is %f", before, after)
		}
		if of := r.reserve(9, 20_000); len(of.flows) != 0 || of.next != 0 {
			t.Errorf("reserved of a paused bucket: %v", of)
		}
		r.resume()
		r.hset("settings", "max_in_flight", 1)
		r.zadd("leases", "x", r.now()+second)
		if of := r.reserve(9, 20_000); len(of.flows) != 0 || of.next != -1 {
			t.Errorf("reserved of a full bucket: %v", of)
		}
	})
}

// The clock of the calendar does not step back with the server's.
func TestCalendarAfterStepBack(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{rateCount: 1, ratePer: second})
		r.putIn("a", 3, 0, named("a", 20)...)
		r.claimFlows(ask{}, reserved{})
		r.pass(2 * second)
		must.Be(t, r.drain(ask{}).ids(), "a0", "claimed")
		r.pass(-3600 * second)
		for i, wait := range []int64{0, 1_300_000, 1_300_000, 1_300_000, 1_300_000} {
			r.pass(wait)
			want := ""
			if i > 0 {
				want = fmt.Sprint("a", i)
			}
			if c := r.drain(ask{}); c.ids() != want {
				t.Errorf("after the step, %d: claimed %q, next in %d", i, c.ids(), c.next-c.now)
			}
		}
	})
}

// The important go first, and low is not starved: it leaves before any that
// came three times the aging later.
func TestPriorities(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.hset("settings", "aging", 10*second)
		r.claim(ask{})
		for _, p := range []int{4, 3, 2, 1} {
			r.putIn("", p, 0, fmt.Sprint("x", p), fmt.Sprint("y", p))
		}
		r.pass(second)
		must.Equal(t, r.claim(ask{}).ids(), "x1 y1 x2 y2 x3 y3 x4 y4", "order")
		r.putIn("", 4, 0, "low")
		r.pass(25 * second)
		r.putIn("", 1, 0, "soon")
		r.pass(10 * second)
		r.putIn("", 1, 0, "critical")
		r.pass(second)
		must.Equal(t, r.claim(ask{}).ids(), "soon low critical", "order")
	})
}

func TestExpiry(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 10}, flowSettings{})
		r.claimFlows(ask{}, reserved{})
		r.putIn("a", 3, 500_000, named("e", 5)...)
		r.putIn("a", 3, 0, "f")
		r.pass(100_000)
		first := r.drain(ask{horizon: 1})
		must.Be(t, first.ids(), "e0", "claimed")
		r.pass(900_000)
		c := r.drain(ask{})
		if c.ids() != "f" || c.expired != 4 {
			t.Errorf("claimed %q, %d expired", c.ids(), c.expired)
		}
		r.wantStates(map[string]int64{"e1": isDead, "e4": isDead, "e0": isInFlight, "f": isInFlight})
		must.Equal(t, r.flowState("a"), stored.Flow{Unfinished: 2, InFlight: 2, Filled: "."}.String(), "flow a")
		last, err := r.c.HGet(r.ctx, r.key("meta"), "e2").Result()
		if r.ok(err); last != "5 0 0 0 0 - "+expiredLast {
			t.Errorf("meta %q", last)
		}
	})
}

// The id of a job that was cancelled deep in a long list lies there until it is popped. In another flow it
// may be that of another job meanwhile, which is claimed there.
func TestCancelledIDInAnotherFlow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000, dedupe: -1}, flowSettings{})
		r.putIn("a", 3, 0, "x", "a1")
		r.cancelDeep("x")
		r.putIn("b", 3, 0, "b1", "x")
		r.claimFlows(ask{}, reserved{})
		r.pass(second)
		c := r.drain(ask{})
		if c.ids() != "a1 b1 x" || c.jobs[2].flow != "b" {
			t.Errorf("claimed %q: %+v", c.ids(), c.jobs)
		}
		if r.counts("a") != "1 0 1" || r.counts("b") != "2 0 2" {
			t.Errorf("a %s, b %s", r.counts("a"), r.counts("b"))
		}
	})
}
