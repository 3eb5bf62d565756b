package shaper

import (
	"math"

	"github.com/tundish-io/tundish/admission"
)

// FastestRate is Rate, or the fastest one of Calendar where that is faster.
func (b Bucket) FastestRate() admission.Rate {
	fastest := b.Rate
	for _, line := range b.Calendar {
		if line.Rate.PerSecond() > fastest.PerSecond() {
			fastest = line.Rate
		}
	}
	return fastest
}

// EffectiveMaxInFlight is MaxInFlight. Where that is 0, it is as many requests as depart at the fastest rate within one
// DeliveryTimeout, so that a receiver that uses up its time does not hold the rate back: at least Burst, and at least 16. Where the
// timeout is not known, it is 256. An override of the rate or of the burst raises what Redis holds (lua/lib/in_flight.lua).
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
