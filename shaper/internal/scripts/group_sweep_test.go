package scripts_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// audit sweeps until all flows and groups have been looked at, and mends.
func (r *rig) audit() (repaired, missing int64) {
	r.t.Helper()
	for cursor := "0"; ; {
		out := r.sweep(sweep{cursor: "0", flowCursor: cursor})
		repaired, missing = repaired+out.repaired, missing+out.missing
		if cursor = out.flowCursor; cursor == "0" {
			return repaired, missing
		}
	}
}

// What was deleted by hand of groups is mended, from what there is of their flows.
func TestSweepMendsGroups(t *testing.T) {
	t.Parallel()
	wrong := flowState{rate: "-", unfinished: 9, scheduled: 2, inFlight: 3}
	for name, c := range map[string]struct {
		harm     func(r *rig)
		repaired int64
	}{
		"nothing":             {func(*rig) {}, 0},
		"groups deleted":      {func(r *rig) { r.del("groups") }, 2},
		"one of them deleted": {func(r *rig) { r.hdel("groups", "a") }, 1},
		"wrong counts":        {func(r *rig) { r.hset("groups", "b", wrong.text()) }, 1},
		"none of ours":        {func(r *rig) { r.hset("groups", "gone", wrong.text()) }, 1},
		"no calendar":         {func(r *rig) { r.del("due_groups") }, 0},
		"no calendar of one":  {func(r *rig) { r.del("due:a") }, 0},
		"no calendar at all":  {func(r *rig) { r.del("due:a", "due:b", "due_groups") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configureGroups(settings{}, flowSettings{}, flowSettings{})
				r.inGroups(2, "a/x", "a/", "b/x")
				r.enqueue(nil, entry{id: "later", group: "b", flow: "z", due: "+60000000"})
				c.harm(r)
				if repaired, missing := r.audit(); repaired != c.repaired || missing != 0 {
					t.Errorf("repaired %d, missing %d", repaired, missing)
				}
				if a, b := r.groupCounts("a"), r.groupCounts("b"); a != "4 0 0" || b != "2 1 0" || r.groupCounts("gone") != "" {
					t.Errorf("a has %q, b %q, gone %q", a, b, r.groupCounts("gone"))
				}
				for _, flow := range []string{path("a", "x"), path("a", ""), path("b", "x"), path("b", "z")} {
					if r.turn(flow) == 0 {
						t.Errorf("flow %q is not in the turn queue", flow)
					}
				}
				if r.groupTurn("a") == 0 || r.groupTurn("b") == 0 {
					t.Errorf("a is at %d, b at %d", r.groupTurn("a"), r.groupTurn("b"))
				}
				if repaired, _ := r.audit(); repaired != 0 {
					t.Errorf("repaired %d the second time", repaired)
				}
			})
		})
	}
}

// A lease that runs out frees the place that held its group back.
func TestSweepFreesAGroup(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{inFlight: 1})
		r.inGroups(2, "a/x", "a/y")
		r.begin()
		c := r.drain(ask{})
		if len(c.jobs) != 1 || r.groupTurn("a") != 0 {
			t.Fatalf("claimed %s; a is at %d", c.ids(), r.groupTurn("a"))
		}
		r.end(c.jobs[0].id)
		if !r.wakes(func() { r.sweep(sweep{}) }) {
			t.Error("nobody was woken")
		}
		if got := r.groupCounts("a"); got != "4 0 0" || r.groupTurn("a") == 0 {
			t.Errorf("a has %s and is at %d", got, r.groupTurn("a"))
		}
		c = r.drain(ask{})
		must.Be(t, len(c.jobs), 1, "claimed %s", c.ids())
		// The third crash makes it poison: it is of its group no more.
		r.hset("meta", c.ids(), fmt.Sprintf("3 %d 0 0 2 %s ", c.jobs[0].epoch, c.jobs[0].claim))
		r.end(c.ids())
		if s := r.sweep(sweep{}); s.poison != 1 || r.groupCounts("a") != "3 0 0" {
			t.Errorf("swept %+v; a has %s", s, r.groupCounts("a"))
		}
	})
}

// Counters of a flow that tell of more than there is are lowered, and those of its group with them.
func TestSweepLowersGroupsWithTheirFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{})
		r.inGroups(3, "a/x", "a/y")
		r.del("q:normal:"+path("a", "x"), "due:a")
		if _, missing := r.audit(); missing != 3 {
			t.Errorf("missing %d", missing)
		}
		must.Equal(t, r.groupCounts("a"), "3 0 0", "a has")
	})
}

// Of many flows there are no sums: groups whose counters cannot be true are mended all the same.
func TestSweepOfGroupsOfManyFlows(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{})
		other := flowState{rate: "1/1000000", slot: r.now() + 500*second, unfinished: 0}
		for i := range 600 {
			r.hset("flows", path("many", fmt.Sprint(i)), other.text())
		}
		r.hset("settings", "flow_rate_count", 1, "flow_rate_per", second)
		wrong := flowState{rate: "-", unfinished: 9, scheduled: 2, inFlight: 3}
		r.hset("groups", "a", wrong.text())
		r.inGroups(1, "b/x")
		r.audit()
		must.Equal(t, r.groupCounts("a"), "9 2 0", "nothing is in flight, and a has")
		r.begin()
		r.settle(outcome{lease: r.drain(ask{}).jobs[0], result: dead})
		r.audit()
		must.Equal(t, r.groupCounts("a"), "", "nothing is there, and a has")
	})
}

// What an operator does to the jobs of one flow counts for its group.
func TestOperatorsAndGroups(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{capacity: 4}, flowSettings{capacity: 5})
		r.putIn(path("a", "x"), 3, 0, "x0", "x1", "x2", "x3")
		r.putIn(path("a", "y"), 3, 0, "y0")
		want := func(when, counts string) {
			t.Helper()
			must.Equal(t, r.groupCounts("a"), counts, "%s a has", when)
		}
		r.cancel("x3", "")
		want("cancelled,", "4 0 0")
		r.begin()
		for _, lease := range r.drain(ask{}).jobs {
			r.settle(outcome{lease: lease, result: dead})
		}
		want("all dead,", "")
		if got := r.redrive("x0", "x1", "y0"); fmt.Sprint(got) != "[1 1 1]" {
			t.Errorf("redriven %v", got)
		}
		want("redriven,", "3 0 0")
		r.putIn(path("a", "z"), 3, 0, "z0", "z1")
		if got := r.redrive("x2", "x0"); fmt.Sprint(got) != "[5 3]" {
			t.Errorf("redriven into a full group %v", got)
		}
		r.hset("settings", "max_flows", 1)
		r.cancel("z0", "")
		if got := r.redrive("x2"); fmt.Sprint(got) != "[1]" {
			t.Errorf("redriven %v", got)
		}
		if p := r.purge(purge{id: "p", flow: path("a", "x"), atMost: 2}); p.removed != 2 || p.left != 1 {
			t.Errorf("purged %+v", p)
		}
		want("purged in part,", "3 0 0")
		r.purge(purge{flow: path("", "")}) // as the sweeper goes on
		want("purged,", "2 0 0")
		must.Equal(t, r.list("normal", path("a", "y")), "y0", "y holds")
	})
}

// What holds a job back of its group is told.
func TestInspectAJobOfAGroup(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{rateCount: 1, inFlight: 1, quotas: fmt.Sprintf("1 %d;", 60*second)})
		r.putIn(path("a", "x"), 3, 0, "x0", "x1")
		r.begin()
		r.drain(ask{})
		j := r.job("x1")
		if g := j.ofGroup; g.inFlight != 1 || g.most != 1 || g.ready-j.now < second/2 || g.ready-j.now > 2*second ||
			g.quota-j.now < 59*second || j.instant < g.quota || j.ofFlow.most != 0 || j.ofFlow.quota != 0 {
			t.Errorf("job %+v", j)
		}
		if c := r.groupState("a"); c.slot == 0 || c.rate != "1/1000000" {
			t.Errorf("group %+v", c)
		}
		r.wantStates(map[string]int64{"x0": isInFlight, "x1": isQueued})
	})
}

// Which flows are in the turn queue of their group.
func TestOutsideTheTurnQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{})
		r.inGroups(1, "a/x", "b/x", "b/y")
		r.zrem("due:b", path("b", "x"))
		got, err := lua.Integers(r.run(lua.OutsideTurnQueue, r.keys("due:a", "due:b", "due:b", "due:c"), path("a", "x"), path("b", "x"), path("b", "y"), path("c", "z")))
		if want := []int64{0, 1, 0, 1}; err != nil || !slices.Equal(got, want) {
			t.Errorf("it says %v, want %v: %v", got, want, err)
		}
	})
}
