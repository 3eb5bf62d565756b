package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The time of --for counts from the first line on: until all processes tell there is none, and a short time would show nothing.
func TestWatchForCountsFromTheFirstLine(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/buckets/b" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name":"b","verdict":{"code":"sends","sentence":"Sends 5 of 5/s"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, second := range []string{
			`{"at":"2026-11-28T21:00:00Z","processes":1,"reporting":0}`,
			`{"at":"2026-11-28T21:00:01Z","processes":1,"reporting":1,"buckets":{"b":{"arrived":7,"departed":5}}}`,
		} {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", second); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	r := runArgs(t.Context(), nil, "", "dispatcher", "watch", "b", "--for", "1ns", "--server", server.URL)
	r.want(t, 0, "waiting until all processes report each second")
	if !strings.Contains(r.out, "21:00:01  b") || !strings.Contains(r.out, "in     7") {
		t.Errorf("it shows %q", r.out)
	}
}
