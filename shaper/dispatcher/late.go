package dispatcher

import "time"

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
func (d *bucketLoop) wakeLimit() time.Duration {
	b := d.obeyed()
	interval := b.Rate.Interval()
	if b.Pool != nil {
		interval = min(interval, b.Pool.Rate.Interval())
	}
	return wakeLimit(interval, b.EffectivePermitTTL())
}
