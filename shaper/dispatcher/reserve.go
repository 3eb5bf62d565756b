package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// turns are whose turn it is, in a bucket with flows.
type turns struct {
	flows  []string
	slots  int64    // how many there are for them at most, 0 if all within the horizon are taken, -1 while the bucket is closed
	own    bool     // no other loop has taken slots since this one served the bucket
	groups []string // of the flows; none in a bucket without
	args   []any    // for the claim: each flow with its turn, then each group
}

// reserve asks which flows have their turn, or when to ask again if none has. Where flows
// are in groups it asks twice: the turn queues of the groups whose turn it is have to be named to a
// script. Each question looks as far ahead as the claim will, that comes one or two round trips later.
func (c *claimer) reserve(ctx context.Context, want int, ahead, roundTrip time.Duration) (turn turns, next int64, err error) {
	ahead += roundTrip
	horizon := ahead
	if c.Levels() == codec.LevelsGroups {
		horizon += roundTrip
	}
	start := time.Now()
	r, err := c.via.RunConfigured(ctx, c.Bucket, lua.Reserve, c.Keys.Of(lua.Reserve), want, horizon.Microseconds(),
		c.Keys.Member, c.dispatcher, c.stepped.Microseconds(), c.steps, c.expected())
	if err != nil {
		return turns{}, 0, fmt.Errorf("reserve flows of bucket %q: %w", c.Name, err)
	}
	now, next := r.Int(), r.Int()
	slots, again, steps := r.Int(), r.Int(), r.Int()
	names, args := readTurns(r)
	if r.Err() != nil {
		return turns{}, 0, fmt.Errorf("reserve flows of bucket %q: %w", c.Name, r.Err())
	}
	if c.clock.observe(start, time.Now(), now) <= 0 { // else the next script is told of the step
		c.stepped, c.steps = 0, steps
	}
	own := c.idle.left(slots, int64(want), now, horizon, c.interval())
	if c.Levels() != codec.LevelsGroups || len(names) == 0 {
		return turns{flows: names, slots: slots, own: own, args: args}, next, nil
	}
	start = time.Now()
	r, err = c.via.RunConfigured(ctx, c.Bucket, lua.ReserveFlows, c.Keys.OfGroups(lua.ReserveFlows, nil, names), slots, ahead.Microseconds(), again,
		c.expected())
	if err != nil {
		return turns{}, 0, fmt.Errorf("reserve flows of groups of bucket %q: %w", c.Name, err)
	}
	c.clock.observe(start, time.Now(), r.Int())
	flows, ofFlows := readTurns(r)
	if r.Err() != nil {
		return turns{}, 0, fmt.Errorf("reserve flows of groups of bucket %q: %w", c.Name, r.Err())
	}
	// Also groups of which no flow is named: the claim puts them back where they belong.
	return turns{flows: flows, slots: slots, own: own, groups: names, args: append(ofFlows, args...)}, next, nil
}

// readTurns reads names, each with its turn.
func readTurns(r *lua.Reader) (names []string, args []any) {
	for r.Left() > 0 {
		name, turn := r.Text(), r.Int()
		names, args = append(names, name), append(args, name, turn)
	}
	return names, args
}
