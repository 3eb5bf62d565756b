package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/tundish-io/tundish/internal/build"
	"github.com/tundish-io/tundish/shaper"
)

const (
	// tracingGrace is how long a stop waits for a collector to accept the last spans: within the 5 s that a pod has above its shutdown_timeout.
	tracingGrace = 3 * time.Second

	exportLogEvery = time.Minute
	onlyProtocol   = "http/protobuf"
)

// Variables of OpenTelemetry that decide whether spans are made, and how many links one may have. The packages of OpenTelemetry read all others.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envDisabled       = "OTEL_SDK_DISABLED"
	envLinks          = "OTEL_SPAN_LINK_COUNT_LIMIT"
)

// Tracing exports the spans of a process by OTLP over HTTP. It never waits for its collector: spans are kept in a bounded queue, and dropped when it is
// full. A nil Tracing makes no spans.
type Tracing struct{ provider *sdktrace.TracerProvider }

// NewTracing returns nil unless env, the environment of the process, has OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. It
// makes no connection yet. The program is the default of the attribute service.name.
func NewTracing(ctx context.Context, env []string, program string, log *slog.Logger) (*Tracing, error) {
	log = log.With("component", "tracing")
	variables := map[string]string{}
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		variables[name] = value
	}
	if !wantsTraces(variables) {
		return nil, nil //nolint:nilnil // a nil *Tracing makes no spans
	}
	if protocol := cmp.Or(variables[envTracesProtocol], variables[envProtocol], onlyProtocol); protocol != onlyProtocol {
		log.WarnContext(ctx, "no traces: this program speaks another protocol; leave OTEL_EXPORTER_OTLP_PROTOCOL out, and name the collector's port for HTTP (mostly 4318)",
			"want", onlyProtocol, "have", protocol)
		return nil, nil //nolint:nilnil // as above
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", program), attribute.String("service.version", build.Of("").Version), attribute.String("service.namespace", "tundish")),
		resource.WithFromEnv(), // the last one wins
	)
	if err != nil {
		log.WarnContext(ctx, "traces say less of this process: see OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	limits := sdktrace.NewSpanLimits()
	if variables[envLinks] == "" {
		limits.LinkCountLimit = shaper.MaxBatchSize // one for each job of a batch
	}
	watched := &watchedExporter{SpanExporter: exporter, log: log, sometimes: rate.Sometimes{First: 1, Interval: exportLogEvery}}
	return &Tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(watched), sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits))}, nil
}

func wantsTraces(variables map[string]string) bool {
	return (variables[envEndpoint] != "" || variables[envTracesEndpoint] != "") &&
		!strings.EqualFold(variables[envDisabled], "true") && variables[envExporter] != "none"
}

// Provider returns the provider of tracers, nil for a nil Tracing.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Close exports the remaining spans, for 3 s at most. Call it once, after the last span has ended.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracingGrace)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the exporter has logged it
}

// watchedExporter logs spans that were lost, once a minute at most. The SDK would hand the error to a handler that the whole process shares.
type watchedExporter struct {
	sdktrace.SpanExporter
	log       *slog.Logger
	lost      atomic.Int64
	sometimes rate.Sometimes
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.lost.Add(int64(len(spans)))
	e.sometimes.Do(func() {
		e.log.WarnContext(ctx, "the collector did not take spans, and they are lost: jobs go on; see that it runs, and what OTEL_EXPORTER_OTLP_ENDPOINT says",
			"lost", e.lost.Swap(0), "error", err)
	})
	return nil
}
