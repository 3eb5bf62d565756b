package llm

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
)

// Values of the labels "kind" and "source".
const (
	kindInput  = "input"
	kindCached = "cached"
	kindOutput = "output"

	sourceReported  = "reported"  // the response reported it
	sourceEstimated = "estimated" // it reported none
)

// ratios are the bounds of tundish_llm_estimate_ratio.
var ratios = []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 2, 3, 4}

// seconds are the bounds of tundish_llm_first_byte_seconds: models think for long.
var seconds = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// What ended a response.
const (
	byProvider = "provider"
	byClient   = "client"
	byTundish  = "tundish"
)

// Metrics count the tokens of good responses, and how they compare with the reservations. Workers of any number of buckets share one. The label "model"
// has the models with an estimate of their own in the worker's [Learned], so callers cannot create unbounded series. A nil *Metrics counts nothing.
// Metrics are safe for concurrent use.
type Metrics struct {
	tokens  *prometheus.CounterVec
	ratio   *prometheus.HistogramVec
	first   *prometheus.HistogramVec
	open    *prometheus.GaugeVec
	endings *prometheus.CounterVec

	mu      sync.Mutex
	buckets map[string]bool // that have series
}

// NewMetrics registers the metrics with reg. A nil reg counts nothing.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	if reg == nil {
		return nil, nil //nolint:nilnil // a nil *Metrics counts nothing
	}
	m := &Metrics{
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_llm_tokens_total",
			Help: "Tokens of good answers: input but for what the provider read from its cache, input that it read there (cached), and output. The source is the answer (reported), or an estimate where the answer reports no usage. Where a fallback answered with another model, asked is the model of the request.",
		}, []string{"bucket", "model", "asked", "kind", "source"}),
		ratio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tundish_llm_estimate_ratio", Help: "Tokens that a request is charged by the usage of its answer, over those that it reserved of budgets.", Buckets: ratios,
		}, []string{"bucket"}),
		first: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tundish_llm_first_byte_seconds", Help: "From the slot of a call behind a route to the first byte of its answer.", Buckets: seconds,
		}, []string{"bucket"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tundish_llm_streams", Help: "Answers that stream to clients of a route now.",
		}, []string{"bucket"}),
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_llm_requests_total", Help: "Requests of clients of a route, by what ended the response: the provider, the client (it went away), or Tundish (a lease was lost, or a process stopped).",
		}, []string{"bucket", "ended_by"}),
		buckets: map[string]bool{},
	}
	if err := errors.Join(reg.Register(m.tokens), reg.Register(m.ratio), reg.Register(m.first), reg.Register(m.open), reg.Register(m.endings)); err != nil {
		return nil, fmt.Errorf("llm: register metrics: %w", err)
	}
	return m, nil
}

// count counts a good response of a model. asked is the model that the client named instead, "" if it is the same. reserved is the attempt's reservation
// of budgets: empty in a bucket without any.
func (m *Metrics) count(bucket, model, asked string, s spent, reserved shaper.Units) {
	if m == nil {
		return
	}
	source := sourceEstimated
	if s.reported {
		source = sourceReported
	}
	m.note(bucket, func() {
		for kind, n := range map[string]int64{kindInput: s.input, kindCached: s.cached, kindOutput: s.output} {
			m.tokens.WithLabelValues(bucket, model, asked, kind, source).Add(float64(n))
		}
		before, _ := reserved.Of(shaper.UnitTokens)
		if s.reported && before > 0 {
			after, _ := s.charged.Of(shaper.UnitTokens)
			m.ratio.WithLabelValues(bucket).Observe(float64(after) / float64(before))
		}
	})
}

// firstByte records that a response to a client begins.
func (m *Metrics) firstByte(a *shaper.Attempt) {
	m.note(a.Bucket, func() { m.first.WithLabelValues(a.Bucket).Observe(time.Since(a.Slot()).Seconds()) })
}

// streams changes the number of responses that stream.
func (m *Metrics) streams(bucket string, more float64) {
	m.note(bucket, func() { m.open.WithLabelValues(bucket).Add(more) })
}

// ended counts a response to a client by what ended it.
func (m *Metrics) ended(bucket, by string) {
	m.note(bucket, func() { m.endings.WithLabelValues(bucket, by).Inc() })
}

// note changes series of a bucket.
func (m *Metrics) note(bucket string, change func()) {
	if m == nil {
		return
	}
	m.mu.Lock() // Keep finds a series only with its bucket
	defer m.mu.Unlock()
	m.buckets[bucket] = true
	change()
}

// Keep removes the series of removed buckets. What is counted of these afterwards makes new series, until the next call.
func (m *Metrics) Keep(isThere func(bucket string) bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for bucket := range m.buckets {
		if isThere(bucket) {
			continue
		}
		delete(m.buckets, bucket)
		m.tokens.DeletePartialMatch(prometheus.Labels{"bucket": bucket})
		m.ratio.DeleteLabelValues(bucket)
		m.first.DeleteLabelValues(bucket)
		m.open.DeleteLabelValues(bucket)
		m.endings.DeletePartialMatch(prometheus.Labels{"bucket": bucket})
	}
}
