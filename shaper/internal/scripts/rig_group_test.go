package scripts_test

import (
	"cmp"
	"fmt"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// jobNames is the part of a header that names flow and group.
type jobNames struct {
	Flow  string `json:"f,omitempty"`
	Group string `json:"g,omitempty"`
}

// configureGroups writes the settings of a bucket whose flows are in groups.
func (r *rig) configureGroups(s settings, f, g flowSettings) {
	r.t.Helper()
	r.configureFlows(s, f)
	r.run(lua.Configure, r.keys("settings", "body", "dead"), 1, s.revision, "", r.name, 1, "test", 0, "flows", 2,
		"group_rate_count", g.rateCount, "group_rate_per", cmp.Or(g.ratePer, second), "group_burst", cmp.Or(g.burst, 1),
		"group_capacity", g.capacity, "group_max_in_flight", g.inFlight, "group_quotas", g.quotas)
	r.hasGroups = true
}

// path is the name of a flow of a group.
func path(group, flow string) string { return codec.FlowPath(group, flow) }

func splitPath(name string) (group, flow string) {
	group, flow, ok := codec.SplitPath(name)
	if !ok {
		panic("no path: " + name)
	}
	return group, flow
}

// nameOf is the name of the flow of a job.
func (r *rig) nameOf(e entry) string {
	if r.hasGroups {
		return path(e.group, e.flow)
	}
	return e.flow
}

// in is the same job, of a flow that has this name in Redis.
func (e entry) in(r *rig, name string) entry {
	e.flow = name
	if r.hasGroups {
		e.group, e.flow = splitPath(name)
	}
	return e
}

// due is the calendar of a flow.
func (r *rig) due(flow string) string {
	if r.hasGroups {
		group, _ := splitPath(flow)
		return "due:" + group
	}
	return "due:"
}

// reserveInGroups reserves groups, and flows of theirs.
func (r *rig) reserveInGroups(want, horizon int64) reserved {
	r.t.Helper()
	of := r.reserveTop(want, horizon)
	out := reserved{now: of.now, next: of.next, slots: of.slots, groups: of.flows, groupTurns: of.turns}
	if len(out.groups) == 0 {
		return out
	}
	in := r.reader(lua.ReserveFlows, r.names().OfGroups(lua.ReserveFlows, nil, out.groups), out.slots, horizon, of.again, r.expected)
	in.Int() // now
	for in.Left() > 0 {
		name, turn := in.Text(), in.Int()
		out.flows, out.turns = append(out.flows, name), append(out.turns, name, turn)
	}
	r.ok(in.Err())
	return out
}

// groupTurn is that of a group in calendar time, 0 if it is not in the turn queue.
func (r *rig) groupTurn(group string) int64 {
	r.t.Helper()
	turns := r.scored("due_groups")
	for _, z := range turns {
		if z.Member == group {
			return int64(z.Score)
		}
	}
	return 0
}

// groupState is what is kept of a group.
func (r *rig) groupState(name string) flowState {
	r.t.Helper()
	texts := must.Get(r.c.HMGet(r.ctx, r.key("groups"), name).Result())(r.t)
	var f flowState
	if text, ok := texts[0].(string); ok {
		if _, err := fmt.Sscan(text, &f.slot, &f.frac, &f.rate, &f.turn, &f.unfinished, &f.scheduled, &f.inFlight); err != nil {
			r.t.Fatalf("group %q is %q: %v", name, text, err)
		}
		return f
	}
	return flowState{rate: "-"}
}

// groupCounts are its counters: unfinished, scheduled, in flight; "" if nothing is kept.
func (r *rig) groupCounts(group string) string {
	r.t.Helper()
	if kept, err := r.c.HExists(r.ctx, r.key("groups"), group).Result(); err != nil || !kept {
		r.ok(err)
		return ""
	}
	g := r.groupState(group)
	return fmt.Sprint(g.unfinished, g.scheduled, g.inFlight)
}

// controlGroup runs control_flow.lua for a group and returns the settings before and after.
func (r *rig) controlGroup(group, action string, args ...any) (before, after string) {
	r.t.Helper()
	in := r.reader(lua.ControlFlow, r.names().OfGroup(group), append([]any{"tundish:wake", r.name, group, action, 3}, args...)...)
	if _, has := in.Int(), in.Int(); has != 2 {
		r.t.Fatalf("the bucket has no groups")
	}
	before, after = in.Text(), in.Text()
	r.ok(in.Err())
	return before, after
}
