package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// loop claims until ctx ends, the first time via a store that shares round trips. Only one claim is under way at a time. The next one is sent when
// half of the horizon is left, so round trips cost no slots.
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
		if ctx.Err() != nil { // whichever case was ready: a stop claims no more
			c.fetchUnanswered(c.life, claimID)
			return
		}
		if soon := max(claimSpacing-time.Since(start), time.Until(c.pause), time.Until(c.deliveries.faults.pausedUntil())); soon > 0 {
			timer.Reset(soon)
			continue
		}
		want := c.want()
		if want == 0 {
			timer.Reset(idleClaim) // a freed worker wakes the loop
			continue
		}
		// The first claims only measure the clock of Redis. If they were slow, slots converted by them could be early by half of a round trip. They
		// also find out whether there is work. The very first ones of all buckets share round trips, as they return no jobs.
		c.measuresClock = c.clock.latest(time.Now()) == 0
		if !c.clock.isMeasured() {
			want = 0
		}
		start = time.Now()
		// A claim continues after a stop: its jobs are delivered, and not left to their leases.
		wait, err := c.claim(c.life, claimID, want)
		c.via = c.store
		if err != nil {
			c.held.keepUnanswered()
			// The same claim id again: the reply repeats what was lost.
			if !c.elsewhere.logIfMoved(ctx, c.log, err) {
				c.outage.failed(ctx, start, err)
			}
			if errors.Is(err, shaper.ErrMoves) { // each try holds the bucket's jobs: the sooner it moves, the better
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

// wakeOthers makes other dispatchers claim from the bucket before this one, if a script asked for that. A dispatcher that knows of a step of the
// clock then reports it. If the message is lost, the next claim continues anyway.
func (c *claimer) wakeOthers(ctx context.Context) {
	if !c.wakesOthers {
		return
	}
	c.wakesOthers = false
	if err := c.store.Redis.Publish(ctx, store.WakeChannel, c.Keys.Name).Err(); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "other dispatchers were not woken", "error", err)
	}
}
