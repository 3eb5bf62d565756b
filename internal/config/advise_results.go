package config

import (
	"fmt"
	"math"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// adviseOnResults advises on a log of deliveries that is shorter than its retention: at the fastest rate of the bucket, results_max drops results
// before.
func adviseOnResults(advise func(string, ...any), p place, b Bucket) {
	rate, of := fastest(b)
	if b.Results.Retention == 0 || rate.IsZero() {
		return
	}
	held := time.Duration(math.Min(float64(b.Results.Max)/rate.PerSecond(), float64(shaper.MaxDelay/time.Second)) * float64(time.Second))
	if held >= b.Results.Retention {
		return
	}
	next := fmt.Sprintf("%d results are more than results_max may be (%d): want a shorter result_retention, or deliveries that are logged elsewhere", needed(b), int64(shaper.MaxResults))
	if n := needed(b); n <= shaper.MaxResults {
		next = fmt.Sprintf("to keep all want results_max = %d, and results_bytes for as many", n)
	}
	advise("%s: result_retention is %s, and results_max (%d) is reached in %s at its %s (%s): the flow that has the most results then drops its oldest ones; %s",
		p.shown, brief(b.Results.Retention), b.Results.Max, brief(held.Round(time.Second)), of, rate, next)
}

// needed returns how many results a bucket has after its retention, at its fastest rate.
func needed(b Bucket) int64 {
	rate, _ := fastest(b)
	return int64(math.Ceil(math.Min(rate.PerSecond()*b.Results.Retention.Seconds(), math.MaxInt32*1000)))
}
