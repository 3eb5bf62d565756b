package operator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
)

// What responses of downstreams have changed. The audit of dispatchers counts flows: a scrape reads none.
var (
	holds = prometheus.NewDesc("tundish_holds",
		"Flows that their downstream holds, counted about every 30 seconds; 1 for the bucket itself if it is held.", []string{"bucket"}, nil)
	breakers = prometheus.NewDesc("tundish_breakers",
		"Flows whose circuit breaker is open or half-open, counted about every 30 seconds; 1 for the breaker of the bucket itself.", []string{"bucket", "state"}, nil)
	disabledFlows = prometheus.NewDesc("tundish_disabled_flows",
		"Flows that send nothing and take no jobs until an operator enables them. None where the bucket has no flows.", []string{"bucket"}, nil)
	factor = prometheus.NewDesc("tundish_bucket_adaptive_factor",
		"Part of its rate to which the downstream slows the bucket, 1 if it does not. None where flows are slowed one by one.", []string{"bucket"}, nil)
	poolHolds    = prometheus.NewDesc("tundish_pool_holds", "1 if the downstream holds the pool, else 0.", []string{"pool"}, nil)
	poolBreakers = prometheus.NewDesc("tundish_pool_breakers", "1 if the circuit breaker of the pool is in this state, else 0.", []string{"pool", "state"}, nil)
	poolFactor   = prometheus.NewDesc("tundish_pool_adaptive_factor",
		"Part of its rate to which the downstream slows the pool, 1 if it does not.", []string{"pool"}, nil)
)

func describeDownstreams(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{holds, breakers, disabledFlows, factor, poolHolds, poolBreakers, poolFactor} {
		ch <- desc
	}
}

func collectDownstreams(ch chan<- prometheus.Metric, seen collected) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for i := range seen.buckets {
		b := &seen.buckets[i]
		gauge(holds, float64(b.FlowsHeld)+oneIf(isHeld(b.Downstream, b.Now)), b.Name)
		gauge(breakers, float64(b.FlowsOpen)+oneIf(isIn(b.Downstream, shaper.BreakerOpen)), b.Name, string(shaper.BreakerOpen))
		gauge(breakers, float64(b.FlowsHalfOpen)+oneIf(isIn(b.Downstream, shaper.BreakerHalfOpen)), b.Name, string(shaper.BreakerHalfOpen))
		if b.HasFlows {
			gauge(disabledFlows, float64(b.FlowsDisabled), b.Name)
		}
		if !b.HasFlows || b.Downstream != nil {
			gauge(factor, factorOf(b.Downstream), b.Name)
		}
	}
	for i := range seen.pools {
		p := &seen.pools[i]
		gauge(poolHolds, oneIf(isHeld(p.Downstream, p.Now)), p.Name)
		for _, state := range []shaper.BreakerState{shaper.BreakerOpen, shaper.BreakerHalfOpen} {
			gauge(poolBreakers, oneIf(isIn(p.Downstream, state)), p.Name, string(state))
		}
		gauge(poolFactor, factorOf(p.Downstream), p.Name)
	}
}

// isHeld reports whether there is a hold that no breaker makes.
func isHeld(d *shaper.Downstream, now time.Time) bool {
	return d.HeldAt(now) && d.Breaker == shaper.BreakerClosed
}

func isIn(d *shaper.Downstream, state shaper.BreakerState) bool {
	return d != nil && d.Breaker == state
}

func factorOf(d *shaper.Downstream) float64 {
	if d == nil {
		return 1
	}
	return d.Factor
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
