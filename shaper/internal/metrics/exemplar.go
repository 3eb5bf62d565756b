package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observe adds a time to a histogram. A trace makes it an exemplar, which leads from a slow bucket of the histogram to one of its requests.
func observe(to prometheus.Observer, took time.Duration, traceID string) {
	if traceID != "" {
		if exemplars, ok := to.(prometheus.ExemplarObserver); ok {
			exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
			return
		}
	}
	to.Observe(took.Seconds())
}
