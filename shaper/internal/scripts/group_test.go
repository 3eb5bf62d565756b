package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// groupOrder are the groups of what was claimed, and of each the flow: of names of one letter.
func groupOrder(c claimed) (groups, flows string) {
	for _, job := range c.jobs {
		group, flow := splitPath(job.flow)
		groups, flows = groups+group, flows+flow
	}
	return groups, flows
}

// inGroups puts n jobs into each of these flows, "group/flow".
func (r *rig) inGroups(n int, flows ...string) {
	r.t.Helper()
	for _, flow := range flows {
		group, name, _ := strings.Cut(flow, "/")
		r.putIn(path(group, name), 3, 0, named(fmt.Sprintf("%s-%s-%d-", group, name, nextClaim()), n)...)
	}
}

// begin begins the pace, and lets a second pass.
func (r *rig) begin() {
	r.t.Helper()
	r.claimFlows(ask{}, reserved{})
	r.pass(second)
}

// Groups take turns, whatever the number of their flows is, and within a group its flows do.
func TestGroupsTakeTurns(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 100}, flowSettings{}, flowSettings{})
		r.inGroups(50, "a/x", "a/y", "a/z", "b/x", "c/x", "c/y")
		r.begin()
		var groups, ofA string
		for len(groups) < 60 {
			c := r.drain(ask{horizon: 50_000}) // five or six slots
			more, flows := groupOrder(c)
			for i := range more {
				if more[i] == 'a' {
					ofA += flows[i : i+1]
				}
			}
			groups += more
			r.pass(50_000)
		}
		for i := range 57 {
			if got := groups[i : i+3]; !strings.Contains("abcabc", got) {
				t.Fatalf("turns %q, at %d %q", groups, i, got)
			}
		}
		// The flows of one group that a claim does not get keep their turns: each has as many, but for what one claim gave.
		for _, flow := range []string{"x", "y", "z"} {
			if n := strings.Count(ofA, flow); n < len(ofA)/3-1 || n > len(ofA)/3+2 {
				t.Errorf("flow %s had %d of the %d turns of its group: %s", flow, n, len(ofA), ofA)
			}
		}
	})
}

func TestGroupWeights(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 1000}, flowSettings{}, flowSettings{})
		r.controlGroup("a", "set", "", "", "", "", "", 3)
		r.inGroups(300, "a/x", "a/y", "b/x")
		r.begin()
		var groups string
		for len(groups) < 100 {
			more, _ := groupOrder(r.drain(ask{horizon: 7_000})) // turns do not end with claims
			groups += more
			r.pass(7_000)
		}
		if a := strings.Count(groups[:100], "a"); a < 73 || a > 77 {
			t.Errorf("a had %d of 100: %s", a, groups)
		}
	})
}

// A group that gets new flows all the time is not first all the time.
func TestAGroupOfNewFlowsWaitsForItsTurn(t *testing.T) {
	for _, horizon := range []int64{100_000, 200_000} { // one slot a claim, or two
		t.Run(fmt.Sprint(horizon), func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configureGroups(settings{rateCount: 10}, flowSettings{}, flowSettings{})
				r.inGroups(60, "a/old", "b/x")
				r.begin()
				var groups string
				for round := range 40 {
					r.inGroups(1, fmt.Sprint("a/new", round))
					c := r.drain(ask{horizon: horizon})
					more, _ := groupOrder(c)
					groups += more
					r.pass(horizon)
				}
				a, b := strings.Count(groups, "a"), strings.Count(groups, "b")
				if a+b < 35 || a-b > 2 || b-a > 2 {
					t.Errorf("turns %s", groups)
				}
			})
		})
	}
}

// held are the ways in which a group is held back, and what ends that.
var held = []struct {
	name string
	hold func(r *rig)
	free func(r *rig, c claimed)
}{
	{name: "paused", hold: func(r *rig) { r.controlGroup("a", "pause", "tests") }, free: func(r *rig, _ claimed) { r.controlGroup("a", "resume") }},
	{name: "in flight", hold: func(r *rig) { r.controlGroup("a", "set", "", "", "", "", 1, "") }, free: func(r *rig, c claimed) {
		r.settle(outcome{lease: c.jobs[slices.IndexFunc(c.jobs, func(l lease) bool { return l.id[0] == 'a' })], result: done})
	}},
	{name: "bound of its own", hold: func(r *rig) { r.controlGroup("a", "set", "", "", "", "", 1, "") }, free: func(r *rig, _ claimed) {
		r.controlGroup("a", "reset")
	}},
}

// A group that is held back is off the calendar of groups, that of its flows stays as it is, and others
// go on. What ends that puts it back, and wakes.
func TestHeldGroups(t *testing.T) {
	t.Parallel()
	for _, h := range held {
		t.Run(h.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				r.configureGroups(settings{rateCount: 1000}, flowSettings{}, flowSettings{})
				r.inGroups(9, "a/x", "a/y", "b/x")
				r.begin()
				c := r.drain(ask{want: 2}) // one of each
				h.hold(r)
				r.drain(ask{want: 1}) // it may see a
				x, y := r.turn(path("a", "x")), r.turn(path("a", "y"))
				for range 3 {
					if more, _ := groupOrder(r.drain(ask{want: 1})); more != "b" {
						t.Errorf("claimed of %q", more)
					}
				}
				if x == 0 || y == 0 || r.turn(path("a", "x")) != x || r.turn(path("a", "y")) != y {
					t.Errorf("the flows of a stood at %d and %d, and stand at %d and %d", x, y, r.turn(path("a", "x")), r.turn(path("a", "y")))
				}
				must.Equal(t, r.groupTurn("a"), 0, "a is in the turn queue, at")
				r.inGroups(1, "a/z") // comes while it is held
				if at, z := r.groupTurn("a"), r.turn(path("a", "z")); at != 0 || z == 0 {
					t.Errorf("a got in the turn queue: %d; its new flow is at %d", at, z)
				}
				if !r.wakes(func() { h.free(r, c) }) && r.groupTurn("b") > r.groupTurn("a") {
					t.Error("nobody was woken")
				}
				if r.groupTurn("a") == 0 {
					t.Error("a is not back in the turn queue")
				}
				if more, _ := groupOrder(r.drain(ask{want: 2})); !strings.Contains(more, "a") {
					t.Errorf("claimed of %q", more)
				}
			})
		})
	}
}

// A rate and a quota of a group hold for all its flows together, and those of a flow beside them.
func TestGroupRateAndQuota(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 1000}, flowSettings{}, flowSettings{quotas: fmt.Sprintf("40 %d;", second)})
		r.controlGroup("a", "set", 20, second, 2, "", "", "")
		r.setFlow(path("a", "x"), flowSettings{rateCount: 5, ratePer: second})
		r.inGroups(100, "a/x", "a/y", "b/x")
		r.begin()
		slots := map[string][]int64{}
		for range 80 {
			for _, job := range r.drain(ask{}).jobs {
				group, _ := splitPath(job.flow)
				slots[group] = append(slots[group], job.slot)
				slots[job.flow] = append(slots[job.flow], job.slot)
			}
			r.pass(25_000)
		}
		for name, want := range map[string]struct{ window, most, least int64 }{
			"a": {second, 22, 38}, "b": {second, 40, 79}, path("a", "x"): {second, 6, 9},
		} {
			got := slots[name]
			if int64(len(got)) < want.least {
				t.Errorf("%s: %d departures", name, len(got))
			}
			for i := int(want.most); i < len(got); i++ {
				if d := got[i] - got[i-int(want.most)]; d < want.window {
					t.Errorf("%s: departures %d and %d are %d apart", name, i, i-int(want.most), d)
				}
			}
		}
	})
}

// The flow's own bounds hold under its group, which goes on with its other flows.
func TestAHeldFlowOfAGroup(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 1000}, flowSettings{inFlight: 1}, flowSettings{})
		r.inGroups(5, "a/x", "a/y")
		r.begin()
		c := r.drain(ask{want: 6})
		if _, flows := groupOrder(c); flows != "xy" || r.groupTurn("a") != 0 || r.turn(path("a", "x")) != 0 {
			t.Fatalf("claimed of %q; a is at %d, x at %d", flows, r.groupTurn("a"), r.turn(path("a", "x")))
		}
		if !r.wakes(func() { r.settle(outcome{lease: c.jobs[1], result: done}) }) {
			t.Error("nobody was woken")
		}
		if _, flows := groupOrder(r.drain(ask{want: 6})); flows != "y" {
			t.Errorf("claimed of %q", flows)
		}
		must.Equal(t, r.groupCounts("a"), "9 0 2", "a has")
	})
}

// reserve_flows.lua: each group gets its share, and those that have more what others leave.
func TestReserveFlowsOfGroups(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 50}, flowSettings{}, flowSettings{})
		r.inGroups(1, "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "b/1", "c/1", "c/2", "c/3", "c/4")
		r.begin()
		of := r.reserve(100, 160_000) // nine slots, or eight
		count := map[string]int{}
		for _, flow := range of.flows {
			group, _ := splitPath(flow)
			count[group]++
		}
		if of.slots < 8 || of.slots > 9 || len(of.flows) != int(of.slots) || count["b"] != 1 || count["a"] < 3 || count["c"] < 2 {
			t.Errorf("reserved %v for %d slots", of.flows, of.slots)
		}
		if again := r.reserve(100, 160_000); len(again.groups)+len(again.flows) > 0 {
			t.Errorf("reserved again: %v, %v", again.groups, again.flows)
		}
		c := r.claimFlows(ask{}, of)
		if len(c.jobs) < 8 {
			t.Errorf("claimed %s", c.ids())
		}
		if a, c := r.groupTurn("a"), r.groupTurn("c"); a == 0 || c == 0 || r.groupTurn("b") != 0 {
			t.Errorf("a is at %d, c at %d, b at %d", a, c, r.groupTurn("b"))
		}
	})
}

// A claim that hands out nothing puts groups and flows back where they were.
func TestAClaimGivesGroupsBack(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 100}, flowSettings{}, flowSettings{})
		r.inGroups(3, "a/x", "a/y", "b/x")
		r.begin()
		turns := func() string {
			return fmt.Sprint(r.groupTurn("a"), r.groupTurn("b"), r.turn(path("a", "x")), r.turn(path("a", "y")), r.turn(path("b", "x")))
		}
		before := turns()
		of := r.reserve(100, 200_000)
		if len(of.groups) != 2 || len(of.flows) != 3 || turns() == before {
			t.Fatalf("reserved %+v", of)
		}
		r.pause()
		if c := r.claimFlows(ask{}, of); len(c.jobs) > 0 || turns() != before {
			t.Errorf("claimed %q; the turns were %s and are %s", c.ids(), before, turns())
		}
		r.resume()
		// So does one that is told of a group and of none of its flows, as another process has these.
		of = r.reserve(100, 200_000)
		of.flows, of.turns = nil, nil
		r.claimFlows(ask{}, of)
		for _, group := range []string{"a", "b"} {
			if at, flow := r.groupTurn(group), r.turn(path(group, "x")); at < flow-10 || at > flow+10 {
				t.Errorf("group %s is at %d, its first flow at %d", group, at, flow)
			}
		}
	})
}
