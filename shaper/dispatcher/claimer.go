package dispatcher

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	// maxClaim bounds the jobs of a claim, so that no script runs for 5 ms. A job of a flow costs three times as much as another one.
	maxClaim        = 500
	maxClaimOfFlows = 200

	// claimSpacing is the least time between two claims of a bucket, so that workers that become free one by one do not cost a claim each.
	claimSpacing = 2 * time.Millisecond

	// firstClaim bounds how long a loop waits for the subscription to wake-ups. An earlier claim would have to be repeated.
	firstClaim = time.Second

	// idleClaim bounds the sleep of a loop.
	idleClaim = 30 * time.Second

	minFaultWait = 100 * time.Millisecond
	maxFaultWait = time.Second
)

// Replies of claim.lua and reserve.lua in place of a time.
const (
	nextNever    = 0  // nothing to do until a wake-up
	nextInFlight = -1 // max_in_flight is reached
	nextAskLater = -2 // no claim for a while, so other dispatchers may know a step of the clock that they have not reported
)

// claimer claims the jobs of one bucket with their slots, and starts their deliveries.
type claimer struct {
	*bucketConn
	held       *leaseHolder
	settler    *settler
	deliveries *deliverer
	deaths     *deaths
	wake       token       // look for work now
	sleeping   atomic.Bool // the loop waits for a wake-up only

	// Of the loop alone.
	via              *store.Store   // what the next claim is sent by
	pause            time.Time      // until then nothing is claimed
	unanswered       *turns         // the arguments of a claim whose reply was lost
	own              ownDeliveries  // of flows
	elsewhere        elsewhere      // whether the bucket has moved
	idle             idleBackoff    // whether others serve the bucket
	link             slowLink       // how large a reply may be
	rate             admission.Rate // effective, as of the last claim; zero before the first
	permitTTL        time.Duration  // at that rate
	wakeLate         time.Duration  // how late a delivery may wake, at that rate
	measuresClock    bool           // the next claim only measures the clock of Redis
	wakesOthers      bool           // other dispatchers of the bucket are to claim first
	stepped          time.Duration  // by which the clock of Redis stepped forwards, not yet reported to a script
	steps            int64          // of the engine's clock, as of the last claim: see lua/lib/pacer.lua
	selfDispatchedAt time.Time      // when a claim last returned a self-dispatched job
	closed           bool           // a script named the time at which the window opens, so waiting jobs are no reason to poll
	mostFlows        int            // most flows of a claim, after the server refused a larger one; 0: no bound
}

func newClaimer(deliveries *deliverer, deaths *deaths) *claimer {
	return &claimer{
		bucketConn: deliveries.bucketConn, held: deliveries.held, settler: deliveries.settler, deliveries: deliveries, deaths: deaths, wake: deliveries.wake,
		via: deliveries.store, link: newSlowLink(),
	}
}

// want returns how many jobs to claim: one per free worker, within the bounds of a script.
func (c *claimer) want() int {
	if c.HasFlows() {
		return min(c.deliveries.free(), cmp.Or(c.mostFlows, maxClaimOfFlows))
	}
	return min(c.deliveries.free(), maxClaim)
}

// untilNext returns how long to wait before the next claim, which is sent early before the time that a script named.
func (c *claimer) untilNext(next int64, early time.Duration) time.Duration {
	b := c.Settings.Load()
	c.closed = next > 0 && (b.Drain != nil || len(b.Calendar) > 0)
	switch next {
	case nextNever, nextInFlight:
		return idleClaim
	case nextAskLater:
		c.pause, c.wakesOthers = time.Now().Add(othersReport), true
		return othersReport
	default:
		return min(time.Until(c.clock.local(next))-early, idleClaim)
	}
}

// obeyed returns the bucket with its effective rate: an operator may have changed it.
func (c *claimer) obeyed() shaper.Bucket {
	b := *c.Settings.Load()
	if !c.rate.IsZero() {
		b.Rate = c.rate
	}
	return b
}

// interval returns the time between two slots: in a pool, at least the pool's.
func (c *claimer) interval() time.Duration {
	b := c.obeyed()
	if b.Pool == nil {
		return b.Rate.Interval()
	}
	return max(b.Rate.Interval(), b.Pool.Rate.Interval())
}

// lateWake is how late a delivery may wake for its slot in a fast bucket. Over a far link a dispatcher holds up to 200 ms of slots, and after a pause
// it can send only this much of them in a bunch.
const lateWake = 12 * time.Millisecond

// wakeLimit returns how late a delivery may wake for its slot: 12 ms, or half an interval if that is more, and at most ttl. A later permit is
// returned unused: the job gets a new slot.
//
// The bound holds for any number of processes that stall together. Slots obey rate·W + burst over all of them. If no departure is more than L late,
// the departures of a window W have their slots in a window W + L. So the receiver sees at most rate·(W + L) + burst: with 12 ms, 1.012 of the rate
// in a second and 1.12 of it in 100 ms. Half an interval adds half a departure. To spread late permits instead would add them to the slots that Redis
// hands out meanwhile, or delay those after them: short stalls would then cost more slots.
//
// Only the time until a delivery wakes counts. A worker that then has to connect has ttl for it.
func wakeLimit(interval, ttl time.Duration) time.Duration {
	return min(max(lateWake, interval/2), ttl)
}

// wakeLimit returns the limit for the bucket at its effective rate. Buckets of a pool share a stream that is as fast as the pool.
func (c *claimer) wakeLimit() time.Duration {
	b := c.obeyed()
	interval := b.Rate.Interval()
	if b.Pool != nil {
		interval = min(interval, b.Pool.Rate.Interval())
	}
	return wakeLimit(interval, b.EffectivePermitTTL())
}
