package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// series holds the series of a metric of buckets. "bucket" is the first label; there are at most two more. M is the type of one series. A known
// series that has counted nothing is exposed at 0, so its rate has a beginning, and takes no memory: a bucket has about 45 of these.
type series[M any] struct {
	vec[M]
	zero   func(labels []string) prometheus.Metric
	others int // number of labels other than "bucket"

	mu    sync.RWMutex
	known map[string][][]string             // bucket → the other labels of its series
	made  map[string]map[[2]string]struct{} // bucket → series that have counted

	reasons sync.Map // of attempts: bucket → reason of the last one that did not succeed. All users of a registry share a series
}

type (
	counters   = series[prometheus.Counter]
	histograms = series[prometheus.Observer]
)

// vec creates and keeps the series that are not at 0.
type vec[M any] interface {
	prometheus.Collector
	WithLabelValues(labels ...string) M
	DeleteLabelValues(labels ...string) bool
}

func newCounters(opts prometheus.CounterOpts, labels ...string) *counters {
	return newSeries[prometheus.Counter](prometheus.NewCounterVec(opts, append([]string{"bucket"}, labels...)), len(labels), func(desc *prometheus.Desc, labels []string) prometheus.Metric {
		return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, 0, labels...)
	})
}

// newHistograms creates histograms with one series per bucket: each takes a kilobyte.
func newHistograms(opts prometheus.HistogramOpts) *histograms {
	empty := make(map[float64]uint64, len(opts.Buckets))
	for _, bound := range opts.Buckets {
		empty[bound] = 0
	}
	return newSeries[prometheus.Observer](prometheus.NewHistogramVec(opts, []string{"bucket"}), 0, func(desc *prometheus.Desc, labels []string) prometheus.Metric {
		return prometheus.MustNewConstHistogram(desc, 0, 0, empty, labels...)
	})
}

func newSeries[M any](of vec[M], others int, zero func(desc *prometheus.Desc, labels []string) prometheus.Metric) *series[M] {
	descs := make(chan *prometheus.Desc, 1)
	of.Describe(descs)
	desc := <-descs
	return &series[M]{
		vec: of, others: others, zero: func(labels []string) prometheus.Metric { return zero(desc, labels) },
		known: map[string][][]string{}, made: map[string]map[[2]string]struct{}{},
	}
}

// know exposes more series of a bucket. The caller must not change others afterwards: buckets may share them.
func (c *series[M]) know(bucket string, others ...[]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.known[bucket]
	if len(before) == 0 {
		c.known[bucket] = others
		return
	}
	all := slices.Clip(before)
	for _, one := range others {
		if !slices.ContainsFunc(before, func(known []string) bool { return slices.Equal(known, one) }) {
			all = append(all, one)
		}
	}
	c.known[bucket] = all
}

// forget removes the series of a bucket whose other labels begin with these.
func (c *series[M]) forget(bucket string, others ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begins := func(labels []string) bool { return slices.Equal(labels[:min(len(labels), len(others))], others) }
	kept := slices.DeleteFunc(slices.Clone(c.known[bucket]), begins)
	if c.known[bucket] = kept; len(kept) == 0 {
		delete(c.known, bucket)
	}
	for made := range c.made[bucket] {
		if labels := made[:c.others]; begins(labels) {
			delete(c.made[bucket], made)
			c.DeleteLabelValues(append([]string{bucket}, labels...)...)
		}
	}
	if len(c.made[bucket]) == 0 {
		delete(c.made, bucket)
	}
}

// WithLabelValues returns a series, and makes it.
func (c *series[M]) WithLabelValues(labels ...string) M {
	var series [2]string
	copy(series[:], labels[1:])
	c.mu.RLock()
	_, isMade := c.made[labels[0]][series]
	if isMade {
		defer c.mu.RUnlock()
		return c.vec.WithLabelValues(labels...)
	}
	c.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[labels[0]] == nil {
		c.made[labels[0]] = map[[2]string]struct{}{}
	}
	c.made[labels[0]][series] = struct{}{}
	return c.vec.WithLabelValues(labels...)
}

// add counts some. None make no series.
func add(c *counters, n int64, labels ...string) {
	if n > 0 {
		c.WithLabelValues(labels...).Add(float64(n))
	}
}

// Collect implements [prometheus.Collector]. No series is created meanwhile, because it would be exposed twice.
func (c *series[M]) Collect(ch chan<- prometheus.Metric) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.vec.Collect(ch)
	for bucket, series := range c.known {
		for _, others := range series {
			var one [2]string
			copy(one[:], others)
			if _, isMade := c.made[bucket][one]; !isMade {
				ch <- c.zero(append([]string{bucket}, others...))
			}
		}
	}
}
