package telemetry_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/telemetry"
)

// Traces are off unless an endpoint is named, and nothing switches them off.
func TestTracingIsOff(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for name, test := range map[string]struct {
		env []string
		on  bool
	}{
		"no variable":    {nil, false},
		"an empty one":   {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, false},
		"an endpoint":    {[]string{endpoint}, true},
		"of traces":      {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces"}, true},
		"disabled":       {[]string{endpoint, "OTEL_SDK_DISABLED=True"}, false},
		"no exporter":    {[]string{endpoint, "OTEL_TRACES_EXPORTER=none"}, false},
		"protocol":       {[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}, true},
		"other protocol": {[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, false},
		"own protocol":   {[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, true},
	} {
		var log strings.Builder
		tracing, err := telemetry.NewTracing(t.Context(), test.env, "tundish-test", slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || (tracing != nil) != test.on || (tracing.Provider() != nil) != test.on {
			t.Errorf("%s: %v, %v", name, tracing, err)
		}
		must.Equal(t, strings.Contains(log.String(), "no traces"), (name == "other protocol"), "%s: it logged %q", name, log.String())
		tracing.Close()
	}
}

// A collector that refuses costs one warning, which says what to do, and the number of spans that were lost.
func TestTracingWithoutCollector(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	var log strings.Builder
	tracing := must.Get(telemetry.NewTracing(t.Context(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL}, "tundish-test", slog.New(slog.NewTextHandler(&log, nil))))(t)
	tracer := tracing.Provider().Tracer("test")
	for range 3 {
		_, span := tracer.Start(t.Context(), "some", trace.WithNewRoot())
		span.End()
	}
	tracing.Close()
	http.DefaultClient.CloseIdleConnections()
	if lines := strings.Count(log.String(), "\n"); asked.Load() != 3 || lines != 1 || !strings.Contains(log.String(), "OTEL_EXPORTER_OTLP_ENDPOINT") || !strings.Contains(log.String(), "lost=1") {
		t.Errorf("%d exports, log:\n%s", asked.Load(), log.String())
	}
}
