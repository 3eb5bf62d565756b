package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// turns holds the reserved flows of a bucket, with their turns.
type turns struct {
	flows  []string
	slots  int64    // number of slots for them, 0 if all within the horizon are taken, -1 while the bucket is closed
	own    bool     // no other loop has taken slots since this one served the bucket
	groups []string // groups of the flows; none in a bucket without groups
	args   []any    // for the claim: each flow with its turn, then each group
}

// reserve returns the flows that have their turn, or the time of the next turn. With groups it makes two calls, because a script must be given the
// turn queues of the groups it reads. Each call looks as far ahead as the claim, plus the one or two round trips until then.
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
	if c.clock.observe(start, time.Now(), now) <= 0 { // otherwise the next script gets the step
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
	// including groups without a named flow: the claim puts them back into the turn queue
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
