package httpworker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// TestJudgedByTheBody: the sender reads as much of a body as the rules want, and no more; a body that breaks off before is no response.
func TestJudgedByTheBody(t *testing.T) {
	t.Parallel()
	far := strings.Repeat(" ", 20<<10)
	for name, c := range map[string]struct {
		body   string
		cut    bool
		rules  workers.Rules
		result shaper.Result
		reason string
	}{
		"far away":             {`{"a":"` + far + `","ok":false}`, false, workers.Rules{{Pointer: "/ok", Value: "false", Outcome: workers.RuleDead}}, shaper.ResultDead, workers.ReasonRule},
		"too far away":         {`{"a":"` + strings.Repeat(far, 4) + `","ok":false}`, false, workers.Rules{{Pointer: "/ok", Value: "false", Outcome: workers.RuleDead}}, shaper.ResultDone, ""},
		"cut before it":        {`{"a":1,`, true, workers.Rules{{Pointer: "/ok", Value: "false", Outcome: workers.RuleDead}}, shaper.ResultRetry, workers.ReasonConnection},
		"cut behind it":        {`{"ok":false,`, true, workers.Rules{{Pointer: "/ok", Value: "false", Outcome: workers.RuleDead}}, shaper.ResultDead, workers.ReasonRule},
		"cut, and no rule":     {`{"a":1,`, true, nil, shaper.ResultDone, ""},
		"cut, by another rule": {`{"a":1,`, true, workers.Rules{{Status: []string{"4xx"}, Pointer: "/ok", Outcome: workers.RuleDead}}, shaper.ResultDone, ""},
		"errors, far items":    {`{"errors":true,"items":[{"a":{"x":"` + far + `","status":429}}]}`, false, nil, shaper.ResultRetry, "http_429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if c.cut {
					w.Header().Set("Content-Length", "100000")
				}
				_, _ = w.Write([]byte(c.body))
			}))
			t.Cleanup(server.Close)
			config := DefaultConfig()
			config.BaseURL, config.AllowNetworks, config.Policy.Rules = server.URL, local, c.rules
			worker := must.Get(New(config))(t)
			t.Cleanup(worker.Close)
			attempt := shaper.NewAttempt(time.Now(), time.Hour, nil)
			attempt.ID, attempt.URL, attempt.Payload = "job-1", "/x", []byte("{}")
			if got := worker.Deliver(t.Context(), attempt); got.Result != c.result || got.Reason != c.reason {
				t.Errorf("%+v, want %s %s", got, c.result, c.reason)
			}
		})
	}
}

// A 409 is tried again only where an earlier attempt with the same key may have taken effect.
func TestConflict(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	api.answer = func(*http.Request) int { return http.StatusConflict }
	config := DefaultConfig()
	config.BaseURL, config.AllowNetworks = api.URL, local
	worker := must.Get(New(config))(t)
	t.Cleanup(worker.Close)
	for inDoubt, want := range map[bool]shaper.Result{false: shaper.ResultDead, true: shaper.ResultRetry} {
		attempt := shaper.NewAttempt(time.Now(), time.Hour, nil)
		attempt.ID, attempt.URL, attempt.Number, attempt.InDoubt = "job-1", "/x", 2, inDoubt
		if got := worker.Deliver(t.Context(), attempt); got.Result != want || api.last().header.Get("Idempotency-Key") != "job-1" {
			t.Errorf("in doubt %t: %+v, want %s", inDoubt, got, want)
		}
	}
}
