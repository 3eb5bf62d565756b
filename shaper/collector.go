package shaper

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collectEvery is how long one look at the buckets serves scrapes.
const collectEvery = time.Second

// Collector reports the depth of buckets and what belongs to it, read from
// Redis at a scrape: one pipeline for all buckets, at most once a second. When
// Redis is down the series are absent.
type Collector struct {
	ctx    context.Context //nolint:containedctx // a scrape brings none
	client *Client

	mu    sync.Mutex
	at    time.Time
	infos []BucketInfo
}

// NewCollector returns a collector to register. It reads until ctx ends.
func NewCollector(ctx context.Context, client *Client) *Collector {
	return &Collector{ctx: ctx, client: client}
}

type bucketGauge struct {
	desc  *prometheus.Desc
	value func(*BucketInfo) float64
}

func gauge(name, help string, value func(*BucketInfo) float64) bucketGauge {
	return bucketGauge{prometheus.NewDesc("tundish_"+name, help, []string{"bucket"}, nil), value}
}

var bucketGauges = []bucketGauge{
	gauge("bucket_depth", "Unfinished jobs: waiting, in flight, retrying.", func(b *BucketInfo) float64 { return float64(b.Unfinished) }),
	gauge("bucket_capacity", "Unfinished jobs that the bucket holds at most.", func(b *BucketInfo) float64 { return float64(b.Capacity) }),
	gauge("bucket_rate_per_second", "Departures a second that the bucket is set to.", func(b *BucketInfo) float64 { return b.Rate.PerSecond() }),
	gauge("bucket_oldest_job_age_seconds", "Age of the job at the head of the list.", func(b *BucketInfo) float64 { return b.OldestAge.Seconds() }),
	gauge("bucket_later_jobs", "Delayed jobs and retries that wait for their time.", func(b *BucketInfo) float64 { return float64(b.Later) }),
	gauge("bucket_in_flight_jobs", "Jobs leased to dispatchers.", func(b *BucketInfo) float64 { return float64(b.InFlight) }),
	gauge("bucket_dead_letters", "Dead letters kept.", func(b *BucketInfo) float64 { return float64(b.Dead) }),
	gauge("bucket_paused", "1 if the bucket is paused, else 0.", func(b *BucketInfo) float64 { return float64(boolArg(b.Pause != nil)) }),
	gauge("bucket_pinned_settings", "Settings that an operator has changed over the configuration.", func(b *BucketInfo) float64 { return float64(len(b.Pins)) }),
	gauge("bucket_purging_jobs", "Jobs that a purge has moved aside and not removed yet.", func(b *BucketInfo) float64 { return float64(b.Purging) }),
	gauge("bucket_forgotten_ids", "Ids of settled jobs forgotten before their dedupe window ended.", func(b *BucketInfo) float64 { return float64(b.Forgotten) }),
}

// purgedTotal is kept in Redis, as purges are made by any process.
var purgedTotal = prometheus.NewDesc("tundish_purged_total", "Jobs that purges have dropped, by whatever process.", []string{"bucket"}, nil)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range bucketGauges {
		ch <- g.desc
	}
	ch <- purgedTotal
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, info := range c.look() {
		for _, g := range bucketGauges {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(&info), info.Name)
		}
		ch <- prometheus.MustNewConstMetric(purgedTotal, prometheus.CounterValue, float64(info.Purged), info.Name)
	}
}

func (c *Collector) look() []BucketInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < collectEvery {
		return c.infos
	}
	infos, _ := c.client.BucketInfos(c.ctx) // those that can be looked at
	c.infos, c.at = infos, time.Now()
	return infos
}
