package shaper

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// reservation is for how long a turn is told to nobody else: see reserve.lua.
const reservation = time.Second

// turns are whose turn it is, in a bucket with flows.
type turns struct {
	flows  []string
	slots  int64    // how many there are for them at most, 0 if all within the horizon are taken
	groups []string // of the flows; none in a bucket without
	args   []any    // for the claim: each flow with its turn, then each group
}

// foreseen are turns that the next claim need not ask for any more: of groups, each with its own, and
// for how many slots.
type foreseen struct {
	names []string
	args  []any
	slots int64
	until time.Time // others may be told the same from then on
}

// reserve asks whose turn it is, or when to ask again if it is nobody's now. Where flows
// are in groups it asks twice, unless the last claim brought the first answer along: the
// calendars of the groups whose turn it is have to be named to a script. Each question looks
// as far ahead as the claim will, that comes one or two round trips later.
func (d *drain) reserve(ctx context.Context, want int, ahead, roundTrip time.Duration) (turn turns, next int64, err error) {
	ahead += roundTrip
	first := d.takeForeseen()
	if first == nil {
		horizon := ahead
		if d.parted() == partedGroups {
			horizon += roundTrip
		}
		call, start := d.toReserve(want, horizon, false), time.Now()
		r, err := d.store.runConfigured(ctx, d.bucketState, call.Script, call.Keys, call.Args...)
		if err != nil {
			return turns{}, 0, fmt.Errorf("reserve flows of bucket %q: %w", d.Name, err)
		}
		var now int64
		first, now, next = readForeseen(r)
		if r.Err() != nil {
			return turns{}, 0, fmt.Errorf("reserve flows of bucket %q: %w", d.Name, r.Err())
		}
		d.clock.observe(start, time.Now(), now)
	}
	if d.parted() != partedGroups || len(first.names) == 0 {
		return turns{flows: first.names, slots: first.slots, args: first.args}, next, nil
	}
	start := time.Now()
	r, err := d.store.runConfigured(ctx, d.bucketState, lua.ReserveFlows, d.keys.forReserveFlows(first.names), first.slots, ahead.Microseconds())
	if err != nil {
		return turns{}, 0, fmt.Errorf("reserve flows of groups of bucket %q: %w", d.Name, err)
	}
	now := r.Int()
	d.clock.observe(start, time.Now(), now)
	flows, ofFlows := readTurns(r)
	if r.Err() != nil {
		return turns{}, 0, fmt.Errorf("reserve flows of groups of bucket %q: %w", d.Name, r.Err())
	}
	// Also groups of which no flow is named: the claim puts them back where they belong.
	return turns{flows: flows, slots: first.slots, groups: first.names, args: append(ofFlows, first.args...)}, next, nil
}

// questions is how many come before a claim.
func (d *drain) questions() int {
	switch d.parted() {
	case partedFlows:
		return 1
	case partedGroups:
		return 2
	default:
		return 0
	}
}

// toReserve is the question whose turn it is: of flows, or of groups where there are some. One
// that foresees is sent right behind a claim.
func (d *drain) toReserve(want int, horizon time.Duration, foresees bool) lua.Call {
	return lua.Call{Script: lua.Reserve, Keys: d.keys.forReserve(), Args: []any{
		want, horizon.Microseconds(), d.keys.member, d.dispatcher, foresees, d.standby.count > fewStandbys && d.mayStepBack(),
		d.stepped.Microseconds(), d.offset,
	}}
}

// readForeseen reads the answer to it.
func readForeseen(r *lua.Reader) (f *foreseen, now, next int64) {
	now, next = r.Int(), r.Int()
	f = &foreseen{slots: r.Int()}
	f.names, f.args = readTurns(r)
	return f, now, next
}

// claimAndForesee sends a claim, and in the same round trip, behind it, the question for the
// groups of the next one. Its answer is right when the claim that follows comes soon, and
// it is lost with that of the claim: these groups then wait for a second.
func (d *drain) claimAndForesee(ctx context.Context, claim lua.Call, want int, horizon time.Duration) (*lua.Reader, error) {
	within, cancel := context.WithTimeout(ctx, d.store.timeout)
	defer cancel()
	start := time.Now()
	results := lua.RunAll(within, d.store.redis, []lua.Call{claim, d.toReserve(want, horizon, true)})
	took := time.Since(start)
	d.store.metrics.observeScript(lua.Claim.Name(), took, results[0].Err)
	d.store.metrics.observeScript(lua.Reserve.Name(), took, results[1].Err)
	if results[0].Err != nil {
		return nil, results[0].Err
	}
	r := lua.NewReader(results[0].Reply)
	if status := r.Int(); r.Err() == nil && status != 0 {
		return d.store.runConfigured(ctx, d.bucketState, claim.Script, claim.Keys, claim.Args...)
	}
	if results[1].Err == nil { // else the next claim asks again
		answer := lua.NewReader(results[1].Reply)
		if status := answer.Int(); status == 0 {
			f, _, _ := readForeseen(answer)
			if answer.Err() == nil && len(f.names) > 0 {
				f.until = start.Add(reservation)
				d.foreseen = f
			}
		}
	}
	return r, r.Err()
}

// takeForeseen is what is foreseen, once, if it is still true.
func (d *drain) takeForeseen() *foreseen {
	f := d.foreseen
	d.foreseen = nil
	if f != nil && time.Now().After(f.until) {
		return nil
	}
	return f
}

// giveBack puts groups back on the calendar where they belong if no claim comes soon that they were
// reserved for: else those whose workers are free would not see them for a second. That is what a
// claim does that wants nothing. Where it fails they wait for that second.
func (d *drain) giveBack(ctx context.Context) {
	f := d.takeForeseen()
	if f == nil {
		return
	}
	id := shortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	claim := d.toClaim(id, 0, minHorizon, 0, turns{groups: f.names, args: f.args})
	if _, err := d.store.runConfigured(ctx, d.bucketState, claim.Script, claim.Keys, claim.Args...); err != nil {
		d.log.WarnContext(ctx, "groups that were reserved wait for a second", "groups", len(f.names), "error", err)
	}
}

// readTurns reads names, each with its turn.
func readTurns(r *lua.Reader) (names []string, args []any) {
	for r.Left() > 0 {
		name, turn := r.Text(), r.Int()
		names, args = append(names, name), append(args, name, turn)
	}
	return names, args
}
