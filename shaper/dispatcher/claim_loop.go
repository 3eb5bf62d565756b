package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// loop claims until ctx ends, first via a store that shares round trips. One claim is under way at a time; the next one
// is sent when half of the horizon is left, so that round trips cost no slots.
func (c *claimer) loop(ctx context.Context, shared *store.Store) {
	claimID := store.ShortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	faultWait := minFaultWait
	c.via = shared
	timer := time.NewTimer(firstClaim)
	defer timer.Stop()
	var start time.Time
	for {
		select {
		case <-ctx.Done():
		case <-c.wake:
			c.idle.woken()
		case <-timer.C:
		}
		if ctx.Err() != nil { // whatever else was ready: a stop claims no more
			c.fetchUnanswered(c.life, claimID)
			return
		}
		if soon := max(claimSpacing-time.Since(start), time.Until(c.pause), time.Until(c.deliveries.faults.pausedUntil())); soon > 0 {
			timer.Reset(soon)
			continue
		}
		want := c.want()
		if want == 0 {
			timer.Reset(idleClaim) // a worker that becomes free nudges
			continue
		}
		// The first claims only learn the clock of Redis: if they were slow, their slots could be earlier than they look by half of it. They also
		// say whether there is something to claim. The very first ones of all buckets share round trips: they bring no jobs.
		c.learns = c.clock.latest(time.Now()) == 0
		if !c.clock.isMeasured() {
			want = 0
		}
		start = time.Now()
		// A claim outlives a stop: what it got is delivered, not left to its lease.
		wait, err := c.claim(c.life, claimID, want)
		c.via = c.store
		if err != nil {
			c.held.keepUnanswered()
			// The same claim id again: it answers what was lost.
			if !c.elsewhere.tell(ctx, c.log, err) {
				c.outage.failed(ctx, start, err)
			}
			if errors.Is(err, shaper.ErrMoves) { // each try holds the bucket: the sooner it moves, the better
				faultWait = minFaultWait
			}
			wait = faultWait/2 + rand.N(faultWait/2) //nolint:gosec // jitter
			faultWait = min(2*faultWait, maxFaultWait)
		} else {
			c.elsewhere.back(ctx, c.log)
			c.outage.worked(ctx, start, c.lease)
			claimID, faultWait = store.ShortID(rand.Uint64()), minFaultWait //nolint:gosec // a name, not a secret
			c.wakeOthers(ctx)
		}
		c.sleeping.Store(err == nil && wait >= idleClaim && !c.closed)
		timer.Reset(max(wait, 0))
	}
}

// wakeOthers has other dispatchers claim from the bucket before this one does, if a script asked for that. One that knows of a step of the
// clock tells it then. Where the message is lost, the next claim goes ahead all the same.
func (c *claimer) wakeOthers(ctx context.Context) {
	if !c.wakesOthers {
		return
	}
	c.wakesOthers = false
	if err := c.store.Redis.Publish(ctx, store.WakeChannel, c.Keys.Name).Err(); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "other dispatchers were not woken", "error", err)
	}
}
