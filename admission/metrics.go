package admission

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/redisconn"
)

// Metrics counts what limiters do. A nil *Metrics counts nothing. The label
// "limit" comes from the names given to [NewMetrics] or [Metrics.SetLimits]; limits that were not
// named there count as "other".
type Metrics struct {
	decisions *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	overflow  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	breaker   prometheus.Gauge
	callers   *RefusedCallers
	limits    atomic.Pointer[map[string]*limitMetrics] // replaced by a reload
	other     *limitMetrics
}

// limitMetrics are the metrics of one limit, looked up once.
type limitMetrics struct {
	outcomes map[outcome]prometheus.Counter
	refusals prometheus.Counter
	overflow prometheus.Counter
	duration prometheus.Observer
}

// outcome is a label of tundish_limit_decisions_total.
type outcome string

const (
	outcomeAllowed       outcome = "allowed"
	outcomeRefused       outcome = "refused"
	outcomeImpossible    outcome = "impossible"
	outcomeShadowRefused outcome = "shadow_refused"
	outcomeExempt        outcome = "exempt"
	outcomeOpen          outcome = "open"          // Redis is away and the limit is Open, or in shadow mode
	outcomeLocalAllowed  outcome = "local_allowed" // Redis is away and the limit is Local
	outcomeLocalRefused  outcome = "local_refused"
	outcomeError         outcome = "error"
)

var outcomes = []outcome{
	outcomeAllowed, outcomeRefused, outcomeImpossible, outcomeShadowRefused, outcomeExempt,
	outcomeOpen, outcomeLocalAllowed, outcomeLocalRefused, outcomeError,
}

const otherLimits = "other"

// NewMetrics registers the metrics for limits of these names with reg. All
// series exist from the start, at 0.
func NewMetrics(reg prometheus.Registerer, limits []string) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_limit_decisions_total", Help: "Decisions of limits that were asked on their own, by outcome.",
		}, []string{"limit", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_limit_local_refusals_total", Help: "Refusals without a request to Redis, because an earlier refusal gave the caller a time to retry.",
		}, []string{"limit"}),
		overflow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_limit_overflow_total", Help: "Decisions for callers above the limit's max_keys, which share one key.",
		}, []string{"limit"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tundish_limit_decision_duration_seconds", Help: "Time that a decision took.",
			Buckets: []float64{.00001, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5},
		}, []string{"limit"}),
		breaker: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tundish_store_breaker_state", Help: "State of the circuit breaker of Redis: 0 closed, 1 half-open, 2 open.",
		}),
	}
	reg.MustRegister(m.decisions, m.refusals, m.overflow, m.duration, m.breaker)
	var err error
	if m.callers, err = RefusedCallersOf(reg); err != nil {
		panic(err) // as MustRegister
	}
	m.other = m.newLimitMetrics(otherLimits)
	m.SetLimits(limits)
	return m
}

// SetLimits replaces the limits that have series of their own, as after a reload, and removes the series of the others. It may run concurrently
// with all other methods, but not with itself.
func (m *Metrics) SetLimits(names []string) {
	if m == nil {
		return
	}
	after := make(map[string]*limitMetrics, len(names))
	for _, name := range names {
		after[name] = m.newLimitMetrics(name)
	}
	before := m.limits.Swap(&after)
	if before == nil {
		return
	}
	for name := range *before {
		if after[name] == nil && name != otherLimits {
			of := prometheus.Labels{"limit": name}
			m.decisions.DeletePartialMatch(of)
			m.refusals.DeletePartialMatch(of)
			m.overflow.DeletePartialMatch(of)
			m.duration.DeletePartialMatch(of)
		}
	}
}

func (m *Metrics) newLimitMetrics(name string) *limitMetrics {
	l := &limitMetrics{
		outcomes: make(map[outcome]prometheus.Counter, len(outcomes)),
		refusals: m.refusals.WithLabelValues(name),
		overflow: m.overflow.WithLabelValues(name),
		duration: m.duration.WithLabelValues(name),
	}
	for _, o := range outcomes {
		l.outcomes[o] = m.decisions.WithLabelValues(name, string(o))
	}
	return l
}

// observe counts a decision of a limit for a caller, or that there was none.
func (m *Metrics) observe(limit, caller string, d *Decision, err error, start time.Time) {
	if m == nil {
		return
	}
	l, ok := (*m.limits.Load())[limit]
	if !ok {
		l = m.other
	}
	l.outcomes[outcomeOf(d, err)].Inc()
	if d.Source == FromMemory {
		l.refusals.Inc()
	}
	if err == nil && !d.Allowed {
		m.callers.Count(limit, caller, start)
	}
	if d.Overflow {
		l.overflow.Inc()
	}
	l.duration.Observe(time.Since(start).Seconds())
}

func outcomeOf(d *Decision, err error) outcome {
	switch {
	case err != nil:
		return outcomeError
	case d.Source == FromExemption:
		return outcomeExempt
	case d.Source == Undecided:
		return outcomeOpen
	case d.Source == FromLocal && d.Allowed && !d.WouldRefuse:
		return outcomeLocalAllowed
	case d.Source == FromLocal && !d.WouldRefuse:
		return outcomeLocalRefused
	case d.WouldRefuse:
		return outcomeShadowRefused
	case d.Impossible:
		return outcomeImpossible
	case d.Allowed:
		return outcomeAllowed
	}
	return outcomeRefused
}

// SetBreaker shows the state of the circuit breaker of Redis: a function for
// [redisconn.BreakerConfig.OnChange].
func (m *Metrics) SetBreaker(state redisconn.BreakerState) {
	if m != nil {
		m.breaker.Set(float64(state)) // the help text explains the numbers
	}
}
