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
	// maxClaim is how many jobs a claim asks for at most, so that no script
	// needs 5 ms. A job of a flow costs three times as much as another one.
	maxClaim        = 500
	maxClaimOfFlows = 200

	// claimSpacing is the least time between two claims of a bucket, so that
	// workers that become free one by one do not cost a claim each.
	claimSpacing = 2 * time.Millisecond

	// firstClaim is how long a loop waits at most until wake-ups are heard: a claim before that would have to be repeated.
	firstClaim = time.Second

	// idleClaim is how long a loop sleeps at most.
	idleClaim = 30 * time.Second

	minFaultWait = 100 * time.Millisecond
	maxFaultWait = time.Second
)

// Answers of claim.lua and reserve.lua that are no time.
const (
	nextNever    = 0  // nothing to do until a wake-up
	nextInFlight = -1 // max_in_flight is reached
	nextAskLater = -2 // nobody has asked for a while, so others may know a step of the clock that they have not told
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
	via         *store.Store   // what the next claim is sent by
	pause       time.Time      // until then nothing is claimed
	unanswered  *turns         // what a claim was told whose answer is not there
	own         ownDeliveries  // of flows
	elsewhere   elsewhere      // whether the bucket is in another place
	idle        idleBackoff    // whether others serve the bucket
	link        slowLink       // how large an answer may be
	rate        admission.Rate // in force as the last claim said, zero before
	permitTTL   time.Duration  // at that rate
	wakeLate    time.Duration  // how late a delivery may wake, at that rate
	learns      bool           // the next claim only learns the clock of Redis
	wakesOthers bool           // other dispatchers of the bucket are to claim first
	stepped     time.Duration  // by which the clock of Redis stepped forwards, and no script knows it
	steps       int64          // of the engine's clock, as the last claim told them: see lua/lib/pacer.lua
	lent        time.Time      // when a claim last had a job that another process sends
	closed      bool           // a script said when the window opens, so that jobs that wait are no reason to look
	mostFlows   int            // that a claim names: the server refused one with more; 0: it refused none
}

func newClaimer(deliveries *deliverer, deaths *deaths) *claimer {
	return &claimer{
		bucketConn: deliveries.bucketConn, held: deliveries.held, settler: deliveries.settler, deliveries: deliveries, deaths: deaths, wake: deliveries.wake,
		via: deliveries.store, link: newSlowLink(),
	}
}

// want is how many jobs to claim: one for each free worker, within what a script can do.
func (c *claimer) want() int {
	if c.HasFlows() {
		return min(c.deliveries.free(), cmp.Or(c.mostFlows, maxClaimOfFlows))
	}
	return min(c.deliveries.free(), maxClaim)
}

// untilNext is how long to wait until the next claim, by what a script said: it is sent so
// much earlier.
func (c *claimer) untilNext(next int64, early time.Duration) time.Duration {
	b := c.Settings.Load()
	c.closed = next > 0 && (b.Drain != nil || len(b.Calendar) > 0)
	switch next {
	case nextNever, nextInFlight:
		return idleClaim
	case nextAskLater:
		c.pause, c.wakesOthers = time.Now().Add(othersTell), true
		return othersTell
	default:
		return min(time.Until(c.clock.local(next))-early, idleClaim)
	}
}

// obeyed is the bucket with the rate that is in force: an operator may have
// changed it.
func (c *claimer) obeyed() shaper.Bucket {
	b := *c.Settings.Load()
	if !c.rate.IsZero() {
		b.Rate = c.rate
	}
	return b
}

// interval is that between two slots: of a bucket that shares a pool, no less than the pool's.
func (c *claimer) interval() time.Duration {
	b := c.obeyed()
	if b.Pool == nil {
		return b.Rate.Interval()
	}
	return max(b.Rate.Interval(), b.Pool.Rate.Interval())
}

// lateWake is how late a delivery may wake for its slot in a fast bucket. Over a far link a dispatcher has up to
// 200 ms of slots in hand, and this is all that a pause of it can bunch.
const lateWake = 12 * time.Millisecond

// wakeLimit is how late a delivery may wake for its slot: 12 ms, or half an interval where that is more, and at
// most ttl. A permit that is later is given back unused: the job gets a new slot.
//
// The bound holds for any number of processes that stood still together. Slots obey rate·W + burst over all of them.
// With no departure more than L late, the departures of a window W have their slots in a window W + L. So the receiver
// sees at most rate·(W + L) + burst: with 12 ms, 1.012 of the rate in a second and 1.12 of it in 100 ms. Half
// an interval adds half a departure. Late permits that were spread out instead would come on top of the slots that Redis
// gives out meanwhile, or hold up those behind them: then short stalls cost more slots than this does.
//
// Only the time until a delivery wakes counts. A worker that then needs time to connect has ttl for it.
func wakeLimit(interval, ttl time.Duration) time.Duration {
	return min(max(lateWake, interval/2), ttl)
}

// wakeLimit is that of the bucket at the rate in force. Buckets of a pool share a stream that is as fast as the pool.
func (c *claimer) wakeLimit() time.Duration {
	b := c.obeyed()
	interval := b.Rate.Interval()
	if b.Pool != nil {
		interval = min(interval, b.Pool.Rate.Interval())
	}
	return wakeLimit(interval, b.EffectivePermitTTL())
}
