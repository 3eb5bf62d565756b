package demo

import (
	"math"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// newBucket is the one bucket: bounded, and with a limit for each caller. Of
// half the rate and 0.8 of a second's departures at once, it lets all of them
// together have a third more than the rate: the bucket stays well filled, and
// both it and the limit refuse.
func newBucket(opts Options) shaper.Bucket {
	rate := admission.Rate{Count: int64(opts.Rate), Per: time.Second, Unit: admission.UnitRequests}
	b := shaper.DefaultBucket()
	b.Name, b.Rate = bucketName, rate
	b.Capacity = ceil(capacitySecs * float64(opts.Rate))
	b.Shed = shaper.NoShedding // one priority: all of the bucket is for it
	b.Limits = []admission.Limit{{
		Name: "per-caller", Per: []string{admission.PerCaller},
		Limit: admission.Rate{Count: rate.Count, Per: 2 * rate.Per, Unit: rate.Unit}, Burst: ceil(0.8 * float64(opts.Rate)),
	}}
	return b
}

func ceil(x float64) int64 { return int64(math.Ceil(x)) }

// seconds is a number of seconds as a duration.
func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
