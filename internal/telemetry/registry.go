package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tundish-io/tundish/internal/build"
)

// NewRegistry returns a registry with the metrics that every process has: the metrics of the Go runtime and of the process, and tundish_build_info,
// which is 1
// and has the version and build in its labels.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	b := build.Of("")
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "tundish_build_info",
		Help:        "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "date": b.Date, "goversion": b.Go},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}
