package llmprovider_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/must"
)

// A fault answers every call until it ends, and charges nothing.
func TestFaults(t *testing.T) {
	t.Parallel()
	p := llmprovider.New(llmprovider.Settings{Limits: []llmprovider.Limit{{Unit: llmprovider.Requests, Amount: 1, Window: time.Hour}}})
	for name, c := range map[string]struct {
		fault  llmprovider.Fault
		status int
		header map[string]string
		path   []any // to a word in the body
		word   string
	}{
		"insufficient quota": {llmprovider.InsufficientQuota(), 429, map[string]string{"Retry-After": ""}, []any{"error", "code"}, "insufficient_quota"},
		"spend cap":          {llmprovider.SpendCap(), 429, map[string]string{"Retry-After": ""}, []any{"error", "details", "error_code"}, "enforced_spend_limit_reached"},
		"billing":            {llmprovider.BillingError(), 402, nil, []any{"error", "type"}, "billing_error"},
		"overloaded":         {llmprovider.Overloaded(0), 529, map[string]string{"Retry-After": ""}, []any{"error", "type"}, "overloaded_error"},
		"overloaded, timed":  {llmprovider.Overloaded(1500 * time.Millisecond), 529, map[string]string{"Retry-After": "1.5"}, []any{"error", "type"}, "overloaded_error"},
		"milliseconds":       {llmprovider.RetryAfterMs(250 * time.Millisecond), 429, map[string]string{"Retry-After-Ms": "250", "Retry-After": "3600"}, []any{"error", "code"}, "rate_limit_exceeded"},
		"Gemini":             {llmprovider.RetryInfo(45837 * time.Millisecond), 429, map[string]string{"Retry-After": ""}, []any{0, "error", "details", 1, "retryDelay"}, "45.837s"},
	} {
		p.Fail(c.fault)
		for range 2 {
			w := call(t.Context(), p, chat, name, 1, 1)
			var body any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status {
				t.Errorf("%s: %d %s, %v", name, w.Code, w.Body, err)
			}
			for _, step := range c.path {
				switch step := step.(type) {
				case int:
					body = body.([]any)[step]
				case string:
					body = body.(map[string]any)[step]
				}
			}
			must.Equal[any](t, body, c.word, "%s", name)
			for key, want := range c.header {
				must.Equal(t, w.Header().Get(key), want, "%s: %s", name, key)
			}
		}
	}
	faults := len(p.Log())
	p.Heal()
	if w := call(t.Context(), p, chat, "one", 1, 1); w.Code != http.StatusOK {
		t.Errorf("after the fault: %d %s", w.Code, w.Body)
	}
	if log := p.Log(); faults != 14 || len(log.Refused()) != faults || len(log.Answered()) != 1 || log[0].Used() != 0 {
		t.Errorf("%d of %d calls were refused, answered %v", len(log.Refused()), len(log), log.Answered())
	}
}
