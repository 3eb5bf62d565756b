package demo

import (
	"math"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// newBucket returns the demo's bucket: bounded, and with a limit for each caller. The limit is half the rate, with a burst of 0.8 seconds of departures.
// It admits a third more than the rate from all callers together: the bucket stays well filled, and both the bucket and the limit refuse jobs.
func newBucket(opts Options) shaper.Bucket {
	rate := admission.Rate{Count: int64(opts.Rate), Per: time.Second, Unit: admission.UnitRequests}
	b := shaper.DefaultBucket()
	b.Name, b.Rate = bucketName, rate
	b.Capacity = ceil(capacitySecs * float64(opts.Rate))
	b.Shed = shaper.NoShedding // one priority: it may use the whole bucket
	b.Limits = []admission.Limit{{
		Name: "per-caller", Per: []string{admission.PerCaller},
		Limit: admission.Rate{Count: rate.Count, Per: 2 * rate.Per, Unit: rate.Unit}, Burst: ceil(0.8 * float64(opts.Rate)),
	}}
	return b
}

func ceil(x float64) int64 { return int64(math.Ceil(x)) }

// seconds is a number of seconds as a duration.
func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
