package shaper

import (
	"math"

	"github.com/tundish-io/tundish/admission"
)

// FastestRate returns Rate, or the fastest rate of Calendar if that is faster.
func (b Bucket) FastestRate() admission.Rate {
	fastest := b.Rate
	for _, line := range b.Calendar {
		if line.Rate.PerSecond() > fastest.PerSecond() {
			fastest = line.Rate
		}
	}
	return fastest
}

// EffectiveMaxInFlight returns MaxInFlight. If that is 0, it returns how many requests depart at the fastest rate within one DeliveryTimeout, so that
// a slow receiver does not hold the rate back: at least Burst, and at least 16. If the timeout is unknown, it is 256. An override of the rate or of
// the burst raises the value in Redis (lua/lib/in_flight.lua).
func (b Bucket) EffectiveMaxInFlight() int64 {
	rate := b.FastestRate()
	switch {
	case b.MaxInFlight != 0:
		return b.MaxInFlight
	case b.DeliveryTimeout == 0 || rate.Per == 0:
		return defaultInFlight
	}
	depart := math.Ceil(rate.PerSecond() * b.DeliveryTimeout.Seconds())
	return min(max(int64(min(depart, MaxCapacity)), b.Burst, leastInFlight), MaxCapacity)
}
