package llm

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/shaper"
)

// Values of the labels "kind" and "source".
const (
	kindInput  = "input"
	kindCached = "cached"
	kindOutput = "output"

	sourceReported  = "reported"  // the answer told it
	sourceEstimated = "estimated" // it told none
)

// ratios are the bounds of tundish_llm_estimate_ratio.
var ratios = []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 2, 3, 4}

// Metrics count the tokens of good answers, and how they compare with what the requests reserved. Workers of any number of buckets share
// one. The label "model" has the models that the worker's [Learned] tells apart, so callers cannot make series without a bound. A nil
// *Metrics counts nothing. Metrics are safe for concurrent use.
type Metrics struct {
	tokens *prometheus.CounterVec
	ratio  *prometheus.HistogramVec

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
			Help: "Tokens of good answers: input but for what the provider read from its cache, input that it read there (cached), and output. The source is the answer (reported), or an estimate where the answer tells no usage.",
		}, []string{"bucket", "model", "kind", "source"}),
		ratio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tundish_llm_estimate_ratio", Help: "Tokens that a request is charged by the usage of its answer, over those that it reserved of budgets.", Buckets: ratios,
		}, []string{"bucket"}),
		buckets: map[string]bool{},
	}
	if err := errors.Join(reg.Register(m.tokens), reg.Register(m.ratio)); err != nil {
		return nil, fmt.Errorf("llm: register metrics: %w", err)
	}
	return m, nil
}

// count takes in a good answer of a model. reserved is what the attempt reserved of budgets: nothing in a bucket without any.
func (m *Metrics) count(bucket, model string, s spent, reserved shaper.Units) {
	if m == nil {
		return
	}
	source := sourceEstimated
	if s.reported {
		source = sourceReported
	}
	m.mu.Lock() // Keep finds a series only with its bucket
	defer m.mu.Unlock()
	m.buckets[bucket] = true
	for kind, n := range map[string]int64{kindInput: s.input, kindCached: s.cached, kindOutput: s.output} {
		m.tokens.WithLabelValues(bucket, model, kind, source).Add(float64(n))
	}
	before, _ := reserved.Of(shaper.UnitTokens)
	if s.reported && before > 0 {
		after, _ := s.charged.Of(shaper.UnitTokens)
		m.ratio.WithLabelValues(bucket).Observe(float64(after) / float64(before))
	}
}

// Keep removes the series of buckets that are not there any more. What is counted of these afterwards makes new ones, until the next call.
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
	}
}
