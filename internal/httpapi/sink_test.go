package httpapi_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
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
