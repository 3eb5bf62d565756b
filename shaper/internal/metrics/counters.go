package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are the series of a counter of buckets: "bucket" is the first label, and there are two more at most. A series that is known and
// was never counted is shown at 0, so that a rate of it has where to begin, and takes no memory: a bucket has about 45 of these.
type counters struct {
	*prometheus.CounterVec

	desc   *prometheus.Desc
	others int // labels beside "bucket"

	mu    sync.RWMutex
	known map[string][][]string             // bucket → the other labels of its series
	made  map[string]map[[2]string]struct{} // bucket → those that were counted
}

func newCounters(opts prometheus.CounterOpts, labels ...string) *counters {
	c := &counters{
		CounterVec: prometheus.NewCounterVec(opts, append([]string{"bucket"}, labels...)), others: len(labels),
		known: map[string][][]string{}, made: map[string]map[[2]string]struct{}{},
	}
	descs := make(chan *prometheus.Desc, 1)
	c.Describe(descs)
	c.desc = <-descs
	return c
}

// know has series of a bucket shown, beside those that are known. The caller changes others no more: buckets may share them.
func (c *counters) know(bucket string, others ...[]string) {
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
func (c *counters) forget(bucket string, others ...string) {
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

// WithLabelValues returns the counter of a series, and makes it.
func (c *counters) WithLabelValues(labels ...string) prometheus.Counter {
	var series [2]string
	copy(series[:], labels[1:])
	c.mu.RLock()
	_, isMade := c.made[labels[0]][series]
	if isMade {
		defer c.mu.RUnlock()
		return c.CounterVec.WithLabelValues(labels...)
	}
	c.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[labels[0]] == nil {
		c.made[labels[0]] = map[[2]string]struct{}{}
	}
	c.made[labels[0]][series] = struct{}{}
	return c.CounterVec.WithLabelValues(labels...)
}

// add counts some. None make no series.
func (c *counters) add(n int64, labels ...string) {
	if n > 0 {
		c.WithLabelValues(labels...).Add(float64(n))
	}
}

// Collect implements [prometheus.Collector]. No series is made meanwhile, or it would be there twice.
func (c *counters) Collect(ch chan<- prometheus.Metric) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.CounterVec.Collect(ch)
	for bucket, series := range c.known {
		for _, others := range series {
			var one [2]string
			copy(one[:], others)
			if _, isMade := c.made[bucket][one]; !isMade {
				ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, 0, append([]string{bucket}, others...)...)
			}
		}
	}
}
