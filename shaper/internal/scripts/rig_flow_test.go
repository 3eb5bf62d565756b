package scripts_test

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// claimBytes is what an answer of claim.lua may have of bodies, unless a test says otherwise.
const claimBytes = 1 << 20

// expiredLast is the last response of a job that has expired.
const expiredLast = `{"cause":"expired"}`

// setFlow gives a flow settings of its own.
func (r *rig) setFlow(flow string, f flowSettings) {
	r.t.Helper()
	var own []string
	for _, n := range []int64{f.rateCount, f.ratePer, f.burst, f.capacity, f.inFlight, f.weight, f.paused} {
		if n == 0 {
			own = append(own, "-")
		} else {
			own = append(own, fmt.Sprint(n))
		}
	}
	r.hset("flow_settings", flow, strings.Join(own, " ")+"\n{}")
}

// reserved are flows with their turns.
type reserved struct {
	now, next, slots int64
	again            int64 // of the last ones that are named: settings have changed
	flows            []string
	turns            []any

	groups     []string // where there are some, with their turns
	groupTurns []any
}

func (r *rig) reserve(want, horizon int64) reserved {
	r.t.Helper()
	if r.hasGroups {
		return r.reserveInGroups(want, horizon)
	}
	return r.reserveTop(want, horizon)
}

// reserveTop reserves in the turn queue of flows, or of groups where there are some.
func (r *rig) reserveTop(want, horizon int64) reserved {
	r.t.Helper()
	in := r.reader(lua.Reserve, r.keysOf(lua.Reserve), want, horizon, r.member(), cmp.Or(r.asker, "d"), 0, r.steps, r.expected)
	out := reserved{now: in.Int(), next: in.Int(), slots: in.Int(), again: in.Int()}
	r.steps = in.Int()
	for in.Left() > 0 {
		name, turn := in.Text(), in.Int()
		out.flows, out.turns = append(out.flows, name), append(out.turns, name, turn)
	}
	r.ok(in.Err())
	return out
}

// claimFlows claims of the flows that were reserved.
func (r *rig) claimFlows(a ask, of reserved) claimed {
	r.t.Helper()
	a.claim = cmp.Or(a.claim, fmt.Sprint("claim", nextClaim()))
	args := append([]any{cmp.Or(a.dispatcher, "d"), a.claim, max(cmp.Or(a.want, 100), 0), cmp.Or(a.horizon, 200_000), cmp.Or(a.lease, 30*second),
		a.lead, lastChance, !a.holdsLone, expiredLast, r.withFlows(), r.member(), "tundish:wake", r.name, cmp.Or(a.bytes, claimBytes), a.stepped, r.steps, a.expected, len(of.flows)}, of.turns...)
	return r.readClaim(r.reader(lua.Claim, r.names().OfGroups(lua.Claim, of.flows, of.groups), append(args, of.groupTurns...)...), a.claim)
}

// drain reserves and claims.
func (r *rig) drain(a ask) claimed {
	r.t.Helper()
	of := r.reserve(cmp.Or(a.want, 100), cmp.Or(a.horizon, 200_000))
	if len(of.flows)+len(of.groups) == 0 {
		return claimed{now: of.now, next: of.next}
	}
	return r.claimFlows(a, of)
}

// calendar is the flows on it.
func (r *rig) calendar() string {
	r.t.Helper()
	flows := r.members("due:")
	return strings.Join(flows, " ")
}

// putIn enqueues jobs of a flow, all of which must get in.
func (r *rig) putIn(flow string, priority int, expires int64, ids ...string) {
	r.t.Helper()
	jobs := make([]entry, len(ids))
	for i, id := range ids {
		jobs[i] = entry{id: id, priority: priority, expires: expires}.in(r, flow)
	}
	for i, a := range r.enqueue(nil, jobs...) {
		must.Be(r.t, a.code, 1, "enqueue %s: code", ids[i])
	}
}
