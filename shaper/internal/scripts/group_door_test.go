package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A flow is one of its group: the same name in two groups is two flows, whatever bytes the names are of.
func TestFlowsOfGroupsAreApart(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{})
		var ids, want []string
		args := []any{1 << 20, 2}
		for i, group := range oddFlows {
			for j, flow := range oddFlows {
				id := fmt.Sprintf("j%d-%d", i, j)
				r.putIn(path(group, flow), 3, 0, id)
				ids, want, args = append(ids, id), append(want, path(group, flow)), append(args, id)
			}
		}
		r.hset("body", "unreadable", "no job of ours", "bare", "1 2 00000000000cn001 \nx", "plain", `1 2 00000000000cn001 {"f":"x","u":"y"}`+"\nx", "broken", `1 2 00000000000cn001 {"f":"a\`+"\nx", "odd", `1 2 00000000000cn001 {"g":1}`+"\nx")
		in := lua.NewReader(r.run(lua.FlowsOf, r.keys("body"), append(args, "unreadable", "bare", "plain", "broken", "odd", "nobody")...))
		for _, flow := range append(want, "0:", "0:", "0:x", "0:", "0:", "0:") {
			must.Equal(t, in.Text(), flow, "flow")
		}
		r.ok(in.Err())
		for i, flow := range want {
			must.Equal(t, r.list("normal", flow), ids[i], "flow %q holds", flow)
		}
		if b := r.inspect(); b.hasFlows != 2 || b.flows != int64(len(want)) || b.groups != int64(len(oddFlows)) || b.groupsOnCalendar != b.groups {
			t.Errorf("bucket %+v", b)
		}
	})
}

// A group is full exactly at its bound, by all of its flows together, and a refusal spends nothing.
func TestAFullGroup(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 10}, flowSettings{capacity: 3}, flowSettings{capacity: 4})
		limits := []limit{per(100, second, 100)}
		jobs := []entry{
			{id: "x1", group: "a", flow: "x"}, {id: "x2", group: "a", flow: "x"}, {id: "x3", group: "a", flow: "x"},
			{id: "x4", group: "a", flow: "x"}, {id: "y1", group: "a", flow: "y"}, {id: "y2", group: "a", flow: "y"},
			{id: "later", group: "a", flow: "y", due: "+60000000"}, {id: "b1", group: "b", flow: "x"},
		}
		got := r.enqueue(limits, jobs...)
		must.Equal(t, codes(got), "1@0 1@1 1@2 10@3 1@0 12@4 2@0 1@0", "answers")
		must.Equal(t, got[len(got)-1].limits[0][1], 94, "tokens are left, want 94: refusals spend none")
		full := got[5]
		if full.eta != 4 || full.wait < second/10 || full.wait > second {
			t.Errorf("the full group: %+v", full)
		}
		if c := r.groupCounts("a"); c != "4 1 0" || r.groupCounts("b") != "1 0 0" {
			t.Errorf("a has %s, b %s", c, r.groupCounts("b"))
		}
		// All of a batch get in, or each is told.
		if codes := r.enqueueBatch([]entry{{id: "b2", group: "b", flow: "y"}, {id: "b3", group: "b", flow: "y"}, {id: "b4", group: "b", flow: "y"}}); fmt.Sprint(codes) != "[1 1 1]" {
			t.Errorf("a batch that fits: %v", codes)
		}
		if codes := r.enqueueBatch([]entry{{id: "c1", group: "b", flow: "z"}, {id: "c2", group: "b", flow: "z"}}); fmt.Sprint(codes) != "[12 12]" {
			t.Errorf("a batch that does not fit: %v", codes)
		}
		must.Equal(t, r.flowState(path("b", "z")), "", "of a flow that got nothing in is kept")
		// A place that is free is one for any flow of the group.
		r.begin()
		lease := r.drain(ask{want: 1}).jobs[0]
		r.settle(outcome{lease: lease, result: done})
		e := entry{id: "n1", group: "a", flow: "n"}
		if group, _ := splitPath(lease.flow); group == "b" {
			e.group = "b"
		}
		must.Equal(t, codes(r.enqueue(nil, e, entry{id: "n2", group: e.group, flow: "n"})), "1@0 12@4", "after one has left")
		// Paused, nobody can say when there is room.
		r.controlGroup(e.group, "pause", "tests")
		if a := r.enqueue(nil, entry{id: "n3", group: e.group, flow: "n"})[0]; a.code != groupFull || a.wait != 0 {
			t.Errorf("paused: %+v", a)
		}
		// Its own bound goes before that of all.
		r.controlGroup(e.group, "set", "", "", "", 5, "", "")
		if a := r.enqueue(nil, entry{id: "n3", group: e.group, flow: "n"})[0]; a.code != 1 || a.eta != 0 {
			t.Errorf("with a bound of its own: %+v", a)
		}
	})
}

func TestTooManyGroups(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 1000}, flowSettings{maxFlows: 2}, flowSettings{rateCount: 1, burst: 1})
		r.inGroups(1, "a/x", "b/x")
		r.begin()
		c := r.drain(ask{})
		for _, lease := range c.jobs {
			r.settle(outcome{lease: lease, result: done})
		}
		// The flows are gone, and what is kept of the groups is when they may send again.
		if b := r.inspect(); len(c.jobs) != 2 || b.flows != 0 || b.groups != 2 {
			t.Fatalf("claimed %s; %d flows, %d groups", c.ids(), b.flows, b.groups)
		}
		a := r.enqueue(nil, entry{id: "c", group: "c", flow: "x"}, entry{id: "a", group: "a", flow: "y"})
		if a[0].code != tooManyGroups || a[0].position != 2 || a[0].eta != 2 || a[1].code != 1 {
			t.Errorf("answers %+v", a)
		}
		r.pass(2 * second)
		r.find(sweep{none: true, flowCursor: "g0"})
		must.Equal(t, codes(r.enqueue(nil, entry{id: "c", group: "c", flow: "x"})), "1@0", "when the groups are idle")
	})
}

// What waits longer than its group lets it is told so.
func TestTimesOfGroups(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{rateCount: 1000}, flowSettings{}, flowSettings{rateCount: 2})
		a := r.enqueue(nil, entry{id: "x0", group: "a", flow: "x"}, entry{id: "x1", group: "a", flow: "x"}, entry{id: "x2", group: "a", flow: "x"})
		if gap := a[2].eta - a[0].eta; gap < second-1000 || gap > second+1000 {
			t.Errorf("three jobs of a group with 2/s leave in %d", gap)
		}
		keys, args := r.alike(nil, 2, 3, path("b", "x"))
		for i := range 2 {
			args = append(args, fmt.Sprint("b", i), fmt.Sprintf(`00000000000cn%03d {"f":"x","g":"b"}`+"\n", i+1))
		}
		in := r.reader(lua.Enqueue, keys, args...)
		in.Int()
		if alike, _, _, count, per := in.Int(), in.Int(), in.Int(), in.Int(), in.Int(); alike != 1 || per/count != second/2 {
			t.Errorf("alike %d: %d/%d", alike, count, per)
		}
		j := r.job("x1")
		if j.hasFlows != 2 || j.position != 1 || j.instant-j.now < second/2-20_000 {
			t.Errorf("job %+v, in %d", j, j.instant-j.now)
		}
		r.controlGroup("a", "pause", "tests")
		if j := r.job("x1"); j.ofGroup.paused == 0 || j.ofGroup.note != "tests" || j.instant != 0 {
			t.Errorf("of a group that is paused: %+v", j)
		}
	})
}

// partedAs configures whether there are flows (1), and groups (2).
func partedAs(r *rig, parted int) []int64 {
	r.t.Helper()
	reply := must.Get(lua.Integers(r.run(lua.Configure, r.keys("settings", "body", "dead"), 1, 0, "", r.name, 1, "test", 0, "flows", parted)))(r.t)
	return reply
}

// Whether there are groups cannot change while there are jobs but dead letters, which can be put back after.
func TestGroupsComeAndGoEmpty(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{}, flowSettings{})
		r.putIn(path("a", "x"), 3, 0, "j", "k")
		for _, flows := range []int{0, 1} {
			if got := partedAs(r, flows); got[0] != 3 || got[3] != 2 || got[4] != 2 {
				t.Errorf("flows %d while there are jobs: %v", flows, got)
			}
		}
		r.begin()
		for _, lease := range r.drain(ask{}).jobs {
			r.settle(outcome{lease: lease, result: dead})
		}
		if got := partedAs(r, 1); got[0] != 0 {
			t.Fatalf("flows without groups: %v", got)
		}
		r.hasGroups = false
		if got := r.redrive("j", "k"); fmt.Sprint(got) != "[1 1]" || r.list("normal", "x") != "j k" || r.turn("x") == 0 {
			t.Errorf("redriven %v; x holds %q", got, r.list("normal", "x"))
		}
		if got := partedAs(r, 2); got[0] != 3 || got[4] != 1 {
			t.Errorf("groups while there are jobs: %v", got)
		}
		r.pass(second)
		for _, lease := range r.drain(ask{}).jobs {
			r.settle(outcome{lease: lease, result: dead})
		}
		if got := partedAs(r, 2); got[0] != 0 {
			t.Fatalf("groups again: %v", got)
		}
		r.hasGroups = true
		if got := r.redrive("j"); fmt.Sprint(got) != "[1]" || r.groupCounts("a") != "1 0 0" || r.groupTurn("a") == 0 {
			t.Errorf("redriven %v; a has %s", got, r.groupCounts("a"))
		}
		// Whoever believes that it has no groups is told.
		keys, _ := r.enqueueKeys(nil, path("a", "x"))
		if reply := r.run(lua.Enqueue, keys, "tundish:wake", r.name, "", 0, 0, 0, 1, 1, "x"); fmt.Sprint(reply) != "[3]" {
			t.Errorf("enqueue answered %v", reply)
		}
	})
}

// However jobs come: the bounds of groups hold together with those of flows and of the bucket, and a group is on the
// calendar if and only if a flow of it is.
func TestGroupBoundsModel(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := base.fresh(rt, fmt.Sprint("f", nextClaim()))
		s := settings{capacity: rapid.Int64Range(1, 12).Draw(rt, "capacity")}
		f := flowSettings{capacity: rapid.Int64Range(0, 3).Draw(rt, "flow capacity"), maxFlows: rapid.Int64Range(1, 5).Draw(rt, "flows")}
		g := flowSettings{capacity: rapid.Int64Range(0, 5).Draw(rt, "group capacity")}
		r.configureGroups(s, f, g)
		ofFlow, ofGroup, total := map[string]int64{}, map[string]int64{}, int64(0)
		id := 0
		for range rapid.IntRange(1, 6).Draw(rt, "batches") {
			var jobs []entry
			for range rapid.IntRange(1, 6).Draw(rt, "jobs") {
				id++
				jobs = append(jobs, entry{id: fmt.Sprint("j", id), flow: rapid.SampledFrom([]string{"x", "y", ""}).Draw(rt, "flow"),
					group: rapid.SampledFrom([]string{"a", "b", "", "ab"}).Draw(rt, "group")})
			}
			for i, a := range r.enqueue(nil, jobs...) {
				name, group := r.nameOf(jobs[i]), jobs[i].group
				_, known := ofFlow[name]
				_, knownGroup := ofGroup[group]
				var want int64 = 1
				switch {
				case total >= s.capacity:
					want = 7
				case g.capacity > 0 && ofGroup[group] >= g.capacity:
					want = groupFull
				case f.capacity > 0 && ofFlow[name] >= f.capacity:
					want = flowFull
				case !knownGroup && int64(len(ofGroup)) >= f.maxFlows:
					want = tooManyGroups
				case !known && int64(len(ofFlow)) >= f.maxFlows:
					want = tooManyFlows
				}
				must.Be(rt, a.code, want, "%+v: code", jobs[i])
				if want == 1 {
					ofFlow[name]++
					ofGroup[group]++
					total++
				}
			}
		}
		for _, group := range []string{"a", "b", "", "ab"} {
			want := ""
			if n := ofGroup[group]; n > 0 {
				want = fmt.Sprintf("%d 0 0", n)
			}
			if got := r.groupCounts(group); got != want || (want == "") != (r.groupTurn(group) == 0) {
				rt.Fatalf("group %q has %q, want %q, and is at %d", group, got, want, r.groupTurn(group))
			}
		}
	})
}

// The scripts of a server that is full go on: what is in groups drains.
func TestGroupsDrainOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configureGroups(settings{rateCount: 100_000}, flowSettings{}, flowSettings{inFlight: 3})
	r.inGroups(10, "a/x", "a/y", "b/x")
	r.begin()
	r.fill()
	left := 30
	for deadline := time.Now().Add(time.Minute); left > 0 && time.Now().Before(deadline); {
		for _, lease := range r.drain(ask{}).jobs {
			r.settle(outcome{lease: lease, result: done})
			left--
		}
	}
	if r.find(sweep{none: true, flowCursor: "g0"}); left > 0 || strings.TrimSpace(r.groupCounts("a")+r.groupCounts("b")) != "" {
		t.Errorf("%d are left; a has %q, b %q", left, r.groupCounts("a"), r.groupCounts("b"))
	}
}
