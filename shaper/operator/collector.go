package operator

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// collectEvery is how long one read of the buckets serves scrapes.
const collectEvery = time.Second

// Collector reports the depth of buckets and what belongs to it, and the pools that they
// are in, read from Redis at a scrape: one pipeline for all buckets, one for all
// pools, two for the processes and a few for what waits, at most once a second. When Redis is down the series are absent. Flows and groups
// are only counted: their names, which callers choose, would be labels without a bound.
type Collector struct {
	ctx      context.Context //nolint:containedctx // a scrape brings none
	operator *Operator

	mu   sync.Mutex
	at   time.Time
	seen collected
}

// collected is what a scrape has read.
type collected struct {
	buckets []BucketInfo
	pools   []PoolDetails
	fleet   *fleet.Snapshot // nil if it could not be read

	verdicts []Verdict // of the buckets; none if they could not be read
}

// NewCollector returns a collector to register. It reads until ctx ends.
func NewCollector(ctx context.Context, operator *Operator) *Collector {
	return &Collector{ctx: ctx, operator: operator}
}

// gaugeOf is a gauge of buckets or of pools.
type gaugeOf[T any] struct {
	desc  *prometheus.Desc
	value func(*T) float64
	has   func(*T) bool // whether one has this at all; nil: each has
}

func (g *gaugeOf[T]) collect(ch chan<- prometheus.Metric, of *T, name string) {
	if g.has == nil || g.has(of) {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(of), name)
	}
}

func gauge(name, help string, value func(*BucketInfo) float64) gaugeOf[BucketInfo] {
	return gaugeOf[BucketInfo]{prometheus.NewDesc("tundish_"+name, help, []string{"bucket"}, nil), value, nil}
}

func poolGauge(name, help string, value func(*PoolDetails) float64) gaugeOf[PoolDetails] {
	return gaugeOf[PoolDetails]{prometheus.NewDesc("tundish_"+name, help, []string{"pool"}, nil), value, nil}
}

// onlyIf has a gauge only for some buckets.
func (g gaugeOf[T]) onlyIf(has func(*T) bool) gaugeOf[T] {
	g.has = has
	return g
}

// gaugesOf returns the gauges of the fields of T, a struct, that have the tag. label is the label of the name.
func gaugesOf[T any](label string) (list []gaugeOf[T]) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		tag, ok := field.Tag.Lookup("gauge")
		if !ok {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		value := func(of *T) float64 {
			v := reflect.ValueOf(of).Elem().FieldByIndex(field.Index)
			if d, ok := v.Interface().(time.Duration); ok {
				return d.Seconds()
			}
			return float64(v.Int())
		}
		g := gaugeOf[T]{prometheus.NewDesc("tundish_"+name, field.Tag.Get("help"), []string{label}, nil), value, nil}
		if option == "positive" {
			g = g.onlyIf(func(of *T) bool { return value(of) > 0 })
		}
		list = append(list, g)
	}
	return list
}

func withHours(b *BucketInfo) bool     { return b.Hours != nil }
func withFlows(b *BucketInfo) bool     { return b.HasFlows }
func withFlowsOnly(b *BucketInfo) bool { return b.HasFlows && !b.HasGroups }
func withGroups(b *BucketInfo) bool    { return b.HasGroups }

// Tags describe the gauges of plain numbers: see BucketNumbers.
var bucketGauges = append(gaugesOf[BucketInfo]("bucket"), []gaugeOf[BucketInfo]{
	gauge("bucket_rate_per_second", "Departures a second that the bucket is set to.", func(b *BucketInfo) float64 { return b.Rate.PerSecond() }),
	gauge("bucket_oldest_job_age_seconds", "Age of the oldest job at the head of a list. Of a bucket with flows dispatchers look for it about every 30 seconds; none where jobs wait and none was found.", func(b *BucketInfo) float64 { return b.OldestAge.Seconds() }).
		onlyIf(func(b *BucketInfo) bool { return !b.HasFlows || b.Waiting == 0 || b.OldestAge > 0 }),
	gauge("bucket_paused", "1 if the bucket is paused, else 0.", func(b *BucketInfo) float64 { return oneIf(b.Pause != nil) }),
	gauge("bucket_open", "1 if the bucket leaks by its drain windows or an operator's drain, else 0. None of a bucket that has no windows.", func(b *BucketInfo) float64 { return oneIf(b.Hours.Open) }).onlyIf(withHours),
	gauge("bucket_overridden_settings", "Settings that an operator has changed over the configuration.", func(b *BucketInfo) float64 { return float64(len(b.Overrides)) }),

	// The other pool members have only jobs in flight, or are held back by a pause or their jobs in flight.
	gauge("bucket_flows", "Flows that have jobs, or had some so lately that their pace still counts.", func(b *BucketInfo) float64 { return float64(b.Flows) }).onlyIf(withFlows),
	gauge("bucket_flows_waiting", "Flows that stand in the turn queue: they have something to send, now or later, and are not held back.", func(b *BucketInfo) float64 { return float64(b.FlowsWait) }).onlyIf(withFlowsOnly),
	gauge("bucket_groups", "Groups that have jobs, or had some so lately that their pace still counts.", func(b *BucketInfo) float64 { return float64(b.Groups) }).onlyIf(withGroups),
	gauge("bucket_groups_waiting", "Groups that stand in the turn queue: they have something to send, now or later, and are not held back.", func(b *BucketInfo) float64 { return float64(b.GroupsWait) }).onlyIf(withGroups),
}...)

var poolGauges = append(gaugesOf[PoolDetails]("pool"), []gaugeOf[PoolDetails]{
	poolGauge("pool_rate_per_second", "Departures a second that the pool is set to.", func(p *PoolDetails) float64 { return p.Rate.PerSecond() }),
	poolGauge("pool_last_slot_timestamp_seconds", "When the last slot of any bucket of the pool is, by the clock of Redis. None before there was one.", func(p *PoolDetails) float64 { return float64(p.LastSlot.UnixMicro()) / 1e6 }).
		onlyIf(func(p *PoolDetails) bool { return !p.LastSlot.IsZero() }),
	poolGauge("pool_overridden_settings", "Settings that an operator has changed over the configuration.", func(p *PoolDetails) float64 { return float64(len(p.Overrides)) }),
}...)

// poolWeight also shows which buckets are in a pool: with it a query sums departures by pool.
var poolWeight = prometheus.NewDesc("tundish_pool_bucket_weight", "Weight of a bucket in its pool, compared with the other buckets that have work.", []string{"pool", "bucket"}, nil)

// dispatchers comes from heartbeats, so a producer still reports it when no dispatcher is left.
var dispatchers = prometheus.NewDesc("tundish_bucket_dispatchers",
	"Processes that deliver jobs of the bucket, by their heartbeats. A killed process counts for 15 more seconds.", []string{"bucket"}, nil)

// stalled, blockedJobs and finishLate show the verdict that every view shows.
var (
	stalled = prometheus.NewDesc("tundish_bucket_stalled",
		"1 if jobs are due and no delivery has succeeded in the last 30 seconds, though one should have, else 0. A pause, a closed window, a quota and a budget are no stall.", []string{"bucket"}, nil)
	finishLate = prometheus.NewDesc("tundish_bucket_finish_late",
		"1 if jobs will be left at the finish of the drain window, else 0. None without a finish.", []string{"bucket"}, nil)
	blockedJobs = prometheus.NewDesc("tundish_bucket_blocked_jobs",
		"Jobs that wait, by what keeps them: the codes of bucket why. In a bucket with more than 200 flows an estimate.", []string{"bucket", "code"}, nil)
)

// purgedTotal is kept in Redis, as purges are made by any process.
var purgedTotal = prometheus.NewDesc("tundish_jobs_purged_total", "Jobs that purges have dropped, by whatever process.", []string{"bucket"}, nil)

// deadDroppedTotal is kept in Redis, as any dispatcher drops them.
var deadDroppedTotal = prometheus.NewDesc("tundish_dead_letters_dropped_total",
	"Dead letters that dispatchers have dropped: as dead_retention had ended (retention), or as there were too many (full).", []string{"bucket", "reason"}, nil)

// eventsDroppedTotal is kept in Redis, as any script drops them.
var eventsDroppedTotal = prometheus.NewDesc("tundish_bucket_events_dropped_total",
	"Events that no hook was notified of, because too many events waited already.", []string{"bucket"}, nil)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range bucketGauges {
		ch <- g.desc
	}
	for _, g := range poolGauges {
		ch <- g.desc
	}
	ch <- dispatchers
	ch <- purgedTotal
	ch <- deadDroppedTotal
	ch <- eventsDroppedTotal
	ch <- poolWeight
	ch <- stalled
	ch <- blockedJobs
	ch <- finishLate
	describeDownstreams(ch)
	describeBudgets(ch)
}

func (v *Verdict) collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(stalled, prometheus.GaugeValue, oneIf(v.IsStalled()), v.Bucket)
	jobs := map[WhyCode]int64{}
	for i := range v.Blocked {
		jobs[v.Blocked[i].Code] += v.Blocked[i].Jobs
	}
	for code, n := range jobs {
		ch <- prometheus.MustNewConstMetric(blockedJobs, prometheus.GaugeValue, float64(n), v.Bucket, string(code))
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	seen := c.readNumbers()
	collectDownstreams(ch, seen)
	collectBudgets(ch, seen)
	for i := range seen.verdicts {
		v, hours := &seen.verdicts[i], seen.buckets[i].Hours
		v.collect(ch)
		if hours != nil && hours.Open && !hours.Finish.IsZero() {
			ch <- prometheus.MustNewConstMetric(finishLate, prometheus.GaugeValue, oneIf(v.Left > 0), v.Bucket)
		}
	}
	for _, info := range seen.buckets {
		for _, g := range bucketGauges {
			g.collect(ch, &info, info.Name)
		}
		if seen.fleet != nil {
			ch <- prometheus.MustNewConstMetric(dispatchers, prometheus.GaugeValue, float64(seen.fleet.Dispatchers(info.Name)), info.Name)
		}
		ch <- prometheus.MustNewConstMetric(purgedTotal, prometheus.CounterValue, float64(info.Purged), info.Name)
		ch <- prometheus.MustNewConstMetric(deadDroppedTotal, prometheus.CounterValue, float64(info.DeadDroppedOld), info.Name, "retention")
		ch <- prometheus.MustNewConstMetric(deadDroppedTotal, prometheus.CounterValue, float64(info.DeadDroppedExtra), info.Name, "full")
		ch <- prometheus.MustNewConstMetric(eventsDroppedTotal, prometheus.CounterValue, float64(info.EventsDropped), info.Name)
		if info.Pool != nil && info.Pool.Weight > 0 {
			ch <- prometheus.MustNewConstMetric(poolWeight, prometheus.GaugeValue, float64(info.Pool.Weight), info.Pool.Name, info.Name)
		}
	}
	for _, pool := range seen.pools {
		for _, g := range poolGauges {
			g.collect(ch, &pool, pool.Name)
		}
	}
}

func (c *Collector) readNumbers() collected {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < collectEvery {
		return c.seen
	}
	c.seen.buckets, _ = c.operator.BucketInfos(c.ctx) // those that can be read
	c.seen.pools, _ = c.operator.poolDetails(c.ctx, c.operator.Pools())
	c.seen.fleet = nil
	if len(c.seen.buckets) > 0 { // else Redis does not respond, and a scrape need not wait for it once more
		c.seen.fleet, _ = c.operator.Fleet().Look(c.ctx)
	}
	c.seen.verdicts = nil
	if c.seen.fleet != nil {
		c.seen.verdicts, _ = c.operator.verdicts(c.ctx, c.seen.buckets, c.seen.fleet)
	}
	c.at = time.Now()
	return c.seen
}

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

// Labels of budgets: the bucket is "" for a pool's budget, the pool is "" for a bucket's.
var ofBudget = []string{"bucket", "pool", "budget"}

var (
	budgetLimit    = prometheus.NewDesc("tundish_budget_limit", "Amount of a budget of a bucket or a pool in its window, in the unit of the budget.", ofBudget, nil)
	budgetCharged  = prometheus.NewDesc("tundish_budget_charged", "Of a budget, charged in its window: what jobs in flight reserve, and what the others used.", ofBudget, nil)
	budgetInFlight = prometheus.NewDesc("tundish_budget_in_flight", "Of a budget, reserved by jobs in flight.", ofBudget, nil)
)

func describeBudgets(ch chan<- *prometheus.Desc) {
	ch <- budgetLimit
	ch <- budgetCharged
	ch <- budgetInFlight
}

func collectBudgets(ch chan<- prometheus.Metric, seen collected) {
	collect := func(bucket, pool string, budgets []shaper.BudgetUse) {
		for _, b := range budgets {
			for desc, value := range map[*prometheus.Desc]int64{budgetLimit: b.Budget.Count, budgetCharged: b.Charged, budgetInFlight: b.Open} {
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), bucket, pool, b.Budget.String())
			}
		}
	}
	for i := range seen.buckets {
		collect(seen.buckets[i].Name, "", seen.buckets[i].Budgets)
	}
	for i := range seen.pools {
		collect("", seen.pools[i].Name, seen.pools[i].BudgetUse)
	}
}
