package httpapi_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
)

func TestSinkLogsWhatArrives(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	for _, wanted := range []bool{true, false} {
		handler := httpapi.NewOps(httpapi.OpsConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), Sink: wanted})
		request := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8081/sink", strings.NewReader(`{"a":1}`))
		request.RemoteAddr = "127.0.0.1:1234"
		request.Header.Set("webhook-id", "job-1")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if got, want := answer.Code, map[bool]int{true: 200, false: 404}[wanted]; got != want {
			t.Errorf("sink %v: %d, want %d: %s", wanted, got, want, answer.Body)
		}
	}
	if !strings.Contains(log.String(), "job=job-1") || !strings.Contains(log.String(), `{\"a\":1}`) {
		t.Errorf("the log does not tell: %s", log.String())
	}
}

// The sink of a process of its own takes what comes from anywhere, at any path, and says whether it is ready.
func TestSinkAlone(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	handler := httpapi.NewSink(slog.New(slog.NewTextHandler(&log, nil)))
	ask := func(method, path, body string) int {
		request := httptest.NewRequest(method, "http://sink:9000"+path, strings.NewReader(body))
		request.RemoteAddr = "192.0.2.7:1234"
		request.Header.Set("webhook-id", "job-1")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		return answer.Code
	}
	if got := ask(http.MethodGet, "/readyz", ""); got != http.StatusOK || log.Len() > 0 {
		t.Errorf("/readyz: %d, and the log has %q", got, log.String())
	}
	if got := ask(http.MethodPut, "/orders?expand=items&page=2", `{"a":1}`); got != http.StatusOK || !strings.Contains(log.String(), `job=job-1 attempt="" method=PUT path=/orders query="expand=items&page=2" `) {
		t.Errorf("a delivery: %d, and the log has %q", got, log.String())
	}
	handler.Drain()
	must.Equal(t, ask(http.MethodGet, "/readyz", ""), http.StatusServiceUnavailable, "/readyz of a sink that stops")
}
