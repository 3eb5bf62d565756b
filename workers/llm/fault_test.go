package llm

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/httpworker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Errors as the APIs answer them.
const (
	noQuota    = `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	quotaCode  = `{"error":{"message":"You exceeded your current quota","type":"requests","code":"insufficient_quota"}}`
	rateLimit  = `{"error":{"message":"Rate limit reached for gpt-4o-mini","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`
	billing    = `{"type":"error","error":{"type":"billing_error","message":"Your credit is used up"},"request_id":"req_1"}`
	spendLimit = `{"type":"error","error":{"type":"rate_limit_error","message":"Spend limit","details":{"error_code":"enforced_spend_limit_reached"}}}`
	overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`
	geminiOf   = `{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[
		{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"PerMinute"}]},
		{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"DELAY"}]}}`
)

func gemini(delay string) string { return strings.ReplaceAll(geminiOf, "DELAY", delay) }

func TestJudge(t *testing.T) {
	t.Parallel()
	const (
		retry, dead, held = shaper.ResultRetry, shaper.ResultDead, shaper.ResultHeld
		any5xx            = shaper.SignalFailed
		less, works       = shaper.SignalThrottled, shaper.SignalAccepted
	)
	for _, c := range []struct {
		name   string
		status int
		header string // Retry-After
		body   string
		result shaper.Result
		wait   time.Duration
		reason string
		signal shaper.Signal
	}{
		{"OpenAI out of money", 429, "", noQuota, held, shaper.MaxHold, "billing", less},
		{"OpenAI out of money, by the code", 429, "", quotaCode, held, shaper.MaxHold, "billing", less},
		{"OpenAI out of money, with a short time", 429, "1", noQuota, held, shaper.MaxHold, "billing", less},
		{"Anthropic out of money", 402, "", billing, held, shaper.MaxHold, "billing", less},
		{"Anthropic at its spend limit", 429, "", spendLimit, held, shaper.MaxHold, "billing", less},
		{"a rate limit", 429, "", rateLimit, retry, 0, "http_429", less},
		{"a rate limit that names a time", 429, "20", rateLimit, held, 20 * time.Second, "http_429", less},
		{"Anthropic overloaded", 529, "", overloaded, held, time.Second, "http_529", less},
		{"Anthropic overloaded, with a time", 529, "7", overloaded, held, 7 * time.Second, "http_529", less},
		{"Gemini", 429, "", gemini("45.8s"), held, 45800 * time.Millisecond, "http_429", less},
		{"Gemini, in a list", 429, "", "[" + gemini("45.837906927s") + "]", held, 45837907 * time.Microsecond, "http_429", less},
		{"Gemini, and a header", 429, "3", gemini("45.8s"), held, 3 * time.Second, "http_429", less},
		{"Gemini unavailable", 503, "", gemini("2s"), held, 2 * time.Second, "http_503", less},
		{"Gemini failing, with a time", 500, "", gemini("2s"), held, 2 * time.Second, "http_500", less},
		{"Gemini refusing, with a time", 400, "", gemini("2s"), held, 2 * time.Second, "http_400", less},
		{"Gemini without a time", 429, "", gemini("0s"), retry, 0, "http_429", less},
		{"Gemini with no duration", 429, "", gemini("soon"), retry, 0, "http_429", less},
		{"a long time", 429, "", gemini("99999999s"), held, shaper.MaxHold, "http_429", less},
		{"an error in words", 429, "", `{"error":"insufficient_quota"}`, retry, 0, "http_429", less},
		{"no JSON", 429, "", "insufficient_quota", retry, 0, "http_429", less},
		{"the word elsewhere", 400, "", `{"error":{"type":"invalid_request_error","message":"insufficient_quota","param":"billing_error"}}`, dead, 0, "http_400", works},
		{"nothing", 500, "", "", retry, 0, "http_500", any5xx},
	} {
		for _, hold := range []bool{true, false} {
			policy := workers.Policy{Statuses: httpworker.DefaultStatuses(), Hold: hold}
			response := workers.Response{Status: c.status, Header: http.Header{"Retry-After": {c.header}, "Content-Type": {"application/json"}}, Body: []byte(c.body), At: noon}
			got, want := refineOutcome(policy, policy.Judge(&response), []byte(c.body)), c.result
			signal := c.signal
			if !hold && want == held && c.reason != "billing" {
				if want = retry; c.status == 400 {
					want, c.wait = dead, 0
				}
				signal = policy.Judge(&workers.Response{Status: c.status, At: noon}).Signal
			}
			if got.Result != want || got.RetryAfter != c.wait || got.Reason != c.reason || got.Signal != signal || got.Status != c.status || got.Detail == "" {
				t.Errorf("%s, holds %t: %+v, want %s after %s", c.name, hold, got, want, c.wait)
			}
			must.Equal(t, strings.Contains(got.Detail, "insufficient_quota"), (c.body == noQuota || c.body == quotaCode), "%s: %s", c.name, got.Detail)
		}
	}
}

func FuzzFault(f *testing.F) {
	for _, seed := range []string{noQuota, billing, spendLimit, gemini("1s"), "[]", `[{"error":[]}]`, `{"error":{"details":[null,{"@type":7}]}}`} {
		f.Add(429, []byte(seed))
	}
	policy := workers.Policy{Statuses: httpworker.DefaultStatuses(), Hold: true}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		status = 300 + (status%300+300)%300
		before := policy.Judge(&workers.Response{Status: status, Body: body, At: noon})
		got := refineOutcome(policy, before, body)
		if got.RetryAfter < 0 || got.RetryAfter > shaper.MaxHold || got.Status != status || got.Result != before.Result && got.Result != shaper.ResultHeld {
			t.Fatalf("%d %q: %+v", status, body, got)
		}
	})
}
