package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/redisconn"
)

// scriptMetrics counts runs of scripts, and failures of Redis.
type scriptMetrics struct {
	scripts  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	failures *prometheus.CounterVec
	up       prometheus.Gauge
}

func newScriptMetrics(reg prometheus.Registerer, errs *[]error, duration prometheus.HistogramOpts) scriptMetrics {
	m := scriptMetrics{
		scripts: registered(reg, errs, prometheus.NewHistogramVec(duration, []string{"script"})),
		errors: registered(reg, errs, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_redis_errors_total", Help: "Scripts that failed."}, []string{"script"})),
		failures: registered(reg, errs, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_store_failures_total",
			Help: "Scripts that failed because of Redis: it was unreachable, refused the script for now, was full (out of memory), or refused the user (forbidden).",
		}, []string{"failure"})),
		up: registered(reg, errs, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tundish_store_up", Help: "1 if Redis responded to the last script and did not refuse the user, 0 if not."})),
	}
	for _, failure := range redisconn.Failures() {
		m.failures.WithLabelValues(failure.String())
	}
	return m
}

// ObserveScript counts a run of a script, and the failure of Redis that its error means.
func (m *Metrics) ObserveScript(script string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.scripts.WithLabelValues(script).Observe(took.Seconds())
	failed := m.errors.WithLabelValues(script) // shown at 0 too, so that the rate of the first error has a beginning
	if err != nil {
		failed.Inc()
	}
	failure, up := redisconn.FailureOf(err), 1.0
	if failure == redisconn.Unreachable || failure == redisconn.Forbidden {
		up = 0
	}
	if failure != redisconn.NoFailure {
		m.failures.WithLabelValues(failure.String()).Inc()
	}
	m.up.Set(up)
}
