package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/telemetry"
)

const (
	metricsPage = "docs/metrics.md"
	metricsHead = `# Metrics

<!-- made by go run ./scripts/operations -->

Every metric of ` + "`/metrics`" + ` of a producer and of a dispatcher. A Go program that embeds Tundish has the metrics of the parts it runs. [Monitoring](monitoring.md) says how to
sum them over processes. Both programs also export the usual ` + "`go_*` and `process_*`" + ` metrics.

| metric | type | labels | meaning |
|---|---|---|---|
`
)

// descForm is how a description of a metric prints itself: its name, help and labels have no other accessor.
var descForm = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*?)\}, variableLabels: \{(.*)\}\}$`)

// recorder is a registerer that keeps what is registered.
type recorder struct {
	prometheus.Registerer
	list []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	if err := r.Registerer.Register(c); err != nil {
		return err
	}
	r.list = append(r.list, c)
	return nil
}

func (r *recorder) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// metrics is the page of metrics: a row for each one that a program registers.
func metrics() ([]byte, error) {
	r := &recorder{Registerer: prometheus.NewRegistry()}
	if err := app.RegisterMetrics(r); err != nil {
		return nil, err
	}
	var rows []string
	for _, c := range append(r.list, telemetry.NewRegistry()) {
		more, err := metricRows(c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	slices.SortFunc(rows, func(a, b string) int { return strings.Compare(metricOf(a), metricOf(b)) })
	return []byte(metricsHead + strings.Join(rows, "")), nil
}

// metricOf returns the name of the metric of a row.
func metricOf(row string) string { return strings.SplitN(row, "`", 3)[1] }

func metricRows(c prometheus.Collector) (rows []string, err error) {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	for desc := range descs {
		parts := descForm.FindStringSubmatch(desc.String())
		if parts == nil {
			err = fmt.Errorf("a metric describes itself as %s", desc)
			continue
		}
		name, help := strings.Trim(parts[1], `"`), strings.ReplaceAll(strings.Trim(parts[2], `"`), `\"`, `"`)
		if !strings.HasPrefix(name, "tundish_") {
			continue
		}
		var labels []string
		for _, constant := range strings.Split(parts[3], ",") {
			if label, _, is := strings.Cut(constant, "="); is {
				labels = append(labels, "`"+label+"`")
			}
		}
		for _, label := range strings.Split(parts[4], ",") {
			if label != "" {
				labels = append(labels, "`"+label+"`")
			}
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, typeOf(c, name), strings.Join(labels, ", "), cell(help)))
	}
	return rows, err
}

// typeOf returns the type of a metric: the type of its collector or, of a collector that makes its metrics at a scrape, counter where the name says so. A
// test compares it with what programs expose.
func typeOf(c prometheus.Collector, name string) string {
	kind := strings.ToLower(fmt.Sprintf("%T", c))
	switch {
	case strings.Contains(kind, "histogram"), strings.Contains(kind, "prometheus.observer"):
		return "histogram"
	case strings.HasSuffix(name, "_total"):
		return "counter"
	}
	return "gauge"
}
