package workers

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// rulesOf reads the rules for an API from docs/response-rules.md.
func rulesOf(t *testing.T, api string) Rules {
	t.Helper()
	page, err := os.ReadFile("../docs/response-rules.md")
	must.OK(t, err)
	_, rest, found := strings.Cut(string(page), "<!-- rules: "+api+" -->\n```toml\n")
	text, _, ends := strings.Cut(rest, "```\n")
	if !found || !ends {
		t.Fatalf("docs/response-rules.md has no rules for %s", api)
	}
	var file struct {
		Buckets struct {
			Responses []struct {
				Status               []string
				Pointer, Value       string
				Outcome, Wait, Items string
				WaitDefault          string `toml:"wait_default"`
				ItemStatus           string `toml:"item_status"`
			}
		}
	}
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&file); err != nil {
		t.Fatalf("%s: %v", api, err)
	}
	var rules Rules
	for _, one := range file.Buckets.Responses {
		rule := DefaultRule()
		rule.Status, rule.Pointer, rule.Value, rule.Outcome, rule.Wait, rule.Items, rule.ItemStatus = one.Status, one.Pointer, one.Value, one.Outcome, one.Wait, one.Items, one.ItemStatus
		if one.WaitDefault != "" {
			if rule.WaitDefault, err = time.ParseDuration(one.WaitDefault); err != nil {
				t.Fatal(err)
			}
		}
		rules = append(rules, rule)
	}
	if err := rules.Validate(); err != nil || len(rules) == 0 {
		t.Fatalf("%s: %d rules: %v", api, len(rules), err)
	}
	return rules
}

// Responses in the documented forms of the APIs.
const (
	githubSecondary  = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
	githubForbidden  = `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest"}`
	shopifyThrottled = `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED","documentation":"https://shopify.dev/api/usage/rate-limits"}}],` +
		`"extensions":{"cost":{"requestedQueryCost":202,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":118,"restoreRate":50.0}}}}`
	shopifyDone  = `{"data":{"shop":{"name":"a"}},"extensions":{"cost":{"requestedQueryCost":1,"actualQueryCost":1,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":999,"restoreRate":50.0}}}}`
	shopifyWrong = `{"errors":[{"message":"Field 'x' doesn't exist on type 'QueryRoot'","locations":[{"line":1,"column":3}],"extensions":{"code":"undefinedField"}}]}`
	telegramBan  = `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 14","parameters":{"retry_after":14}}`
	googleLimit  = `{"error":{"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded","message":"User Rate Limit Exceeded"}],"code":403,"message":"User Rate Limit Exceeded"}}`
	googleDenied = `{"error":{"errors":[{"domain":"global","reason":"forbidden","message":"Forbidden"}],"code":403,"message":"Forbidden"}}`
	// As gmail.googleapis.com and sheets.googleapis.com sent them: no header or member names a time.
	gmailLimit  = `{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","errors":[{"message":"Resource has been exhausted (e.g. check quota).","domain":"global","reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}`
	sheetsLimit = `{"error":{"code":429,"message":"Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute per user' of service 'sheets.googleapis.com'","status":"RESOURCE_EXHAUSTED",` +
		`"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","domain":"googleapis.com","metadata":{"quota_limit":"WriteRequestsPerMinutePerUser","service":"sheets.googleapis.com"}}]}}`
	gmailQuota  = `{"error":{"code":403,"message":"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user' of service 'gmail.googleapis.com'","errors":[{"message":"Quota exceeded","domain":"usageLimits","reason":"rateLimitExceeded"}],"status":"PERMISSION_DENIED"}}`
	googleDaily = `{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded","message":"Daily Limit Exceeded"}],"code":403,"message":"Daily Limit Exceeded"}}`
	bulkMissing = `{"took":486,"errors":true,"items":[{"update":{"_index":"a","_id":"5","status":404,"error":{"type":"document_missing_exception","reason":"[5]: document missing"}}},{"create":{"_index":"a","_id":"7","_version":1,"result":"created","status":201}}]}`
	bulkRefused = `{"took":30,"errors":true,"items":[{"index":{"_index":"a","_id":"1","status":201}},{"index":{"_index":"a","_id":"2","status":429,"error":{"type":"es_rejected_execution_exception","reason":"rejected execution"}}}]}`
	bulkWrong   = `{"took":30,"errors":true,"items":[{"index":{"_index":"a","_id":"1","status":201}},{"create":{"_index":"a","_id":"2","status":400,"error":{"type":"mapper_parsing_exception","reason":"failed to parse"}}}]}`
	bulkDone    = `{"took":30,"errors":false,"items":[{"index":{"_index":"a","_id":"1","status":201}}]}`
)

// TestRulesOfThePage judges responses of well-known APIs by the rules that docs/response-rules.md has for them.
func TestRulesOfThePage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		api, name, head string
		status          int
		body            string
		want            shaper.Result
		wait            time.Duration
		signal          shaper.Signal
	}{
		{"github", "secondary limit with a time", "Retry-After: 60", 403, githubForbidden, held, time.Minute, throttled},
		{"github", "primary limit", "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1772366430", 403, githubForbidden, held, 30 * time.Second, throttled},
		{"github", "secondary limit without a time", "x-ratelimit-remaining: 4990\nx-ratelimit-reset: 1772366430", 403, githubSecondary, held, time.Minute, throttled},
		{"github", "no permission", "x-ratelimit-remaining: 4990\nx-ratelimit-reset: 1772366430", 403, githubForbidden, dead, 0, accepted},
		{"shopify", "done", "", 200, shopifyDone, done, 0, accepted},
		{"shopify", "throttled", "", 200, shopifyThrottled, held, 2 * time.Second, throttled},
		{"shopify", "wrong", "", 200, shopifyWrong, dead, 0, accepted},
		{"slack", "done", "", 200, `{"ok":true,"ts":"1503435956.000247"}`, done, 0, accepted},
		{"slack", "limit", "Retry-After: 30", 429, `{"ok":false,"error":"ratelimited"}`, held, 30 * time.Second, throttled},
		{"slack", "limit in a 200", "Retry-After: 2", 200, `{"ok":false,"error":"ratelimited"}`, held, 2 * time.Second, throttled},
		{"slack", "limit of posts", "Retry-After: 1", 429, `{"ok":false,"error":"rate_limited"}`, held, time.Second, throttled},
		{"slack", "limit of posts in a 200", "", 200, `{"ok":false,"error":"rate_limited"}`, held, 30 * time.Second, throttled},
		{"slack", "away", "", 200, `{"ok":false,"error":"service_unavailable"}`, retry, 0, failed},
		{"slack", "failing", "", 200, `{"ok":false,"error":"internal_error"}`, retry, 0, failed},
		{"slack", "wrong", "", 200, `{"ok":false,"error":"channel_not_found"}`, dead, 0, accepted},
		{"telegram", "limit", "", 429, telegramBan, held, 14 * time.Second, throttled},
		{"telegram", "wrong", "", 400, `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`, dead, 0, accepted},
		{"telegram", "done", "", 200, `{"ok":true,"result":{"message_id":7}}`, done, 0, accepted},
		{"google", "limit", "", 403, googleLimit, held, 10 * time.Second, throttled},
		{"google", "Gmail, 429", "", 429, gmailLimit, held, time.Minute, throttled},
		{"google", "Gmail, 403", "", 403, gmailQuota, held, 10 * time.Second, throttled},
		{"google", "Sheets", "", 429, sheetsLimit, held, time.Minute, throttled},
		{"google", "a day's quota", "", 403, googleDaily, held, time.Hour, throttled},
		{"google", "no permission", "", 403, googleDenied, dead, 0, accepted},
		{"google", "RetryInfo", "", 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"28s"}]}}`, held, 28 * time.Second, throttled},
		{"elasticsearch", "done", "", 200, bulkDone, done, 0, accepted},
		{"elasticsearch", "busy", "", 200, bulkRefused, retry, 0, failed},
		{"elasticsearch", "missing", "", 200, bulkMissing, dead, 0, accepted},
		{"elasticsearch", "wrong", "", 200, bulkWrong, dead, 0, accepted},
	} {
		policy := Policy{Rules: rulesOf(t, c.api), Statuses: listed.Statuses, Hold: true, HoldAtZero: true}
		h := header(c.head)
		h.Set("Content-Type", "application/json; charset=utf-8")
		got := policy.Judge(&Response{Status: c.status, Header: h, Body: []byte(c.body), At: noon})
		if got.Result != c.want || got.RetryAfter != c.wait || got.Signal != c.signal {
			t.Errorf("%s, %s: %+v, want %s for %s", c.api, c.name, got, c.want, c.wait)
		}
	}
}

// Without rules, no response that says "less" or "in part" is done, and no other one is held.
func TestJudgeWithoutRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		r      Response
		want   shaper.Result
		wait   time.Duration
		reason string
	}{
		{"a bare 403", Response{Status: 403}, dead, 0, "http_403"},
		{"a 2xx at zero", Response{Status: 200, Header: header("RateLimit: \"default\";r=0;t=5")}, done, 5 * time.Second, ""},
		{"a 2xx of a limit that refills", Response{Status: 200, Header: header("x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s")}, done, 0, ""},
		{"a 2xx with Retry-After", Response{Status: 202, Header: header("Retry-After: 60")}, done, 0, ""},
		{"a 404 at zero", Response{Status: 404, Header: header("X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5")}, held, 5 * time.Second, "http_404"},
		{"a 404 at zero, again", Response{Status: 404, Number: 2, Header: header("X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5")}, dead, 0, "http_404"},
		{"a 403 at zero, again", Response{Status: 403, Number: 9, Header: header("X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5")}, held, 5 * time.Second, "http_403"},
		{"a 403 at zero, as X has it", Response{Status: 403, Header: header("x-rate-limit-limit: 50\nx-rate-limit-remaining: 0\nx-rate-limit-reset: 5")}, held, 5 * time.Second, "http_403"},
		{"a 409", Response{Status: 409}, dead, 0, "http_409"},
		{"a 409 in doubt", Response{Status: 409, Number: 2, InDoubt: true}, retry, 0, "http_409"},
		{"a bulk", Response{Status: 200, Body: []byte(bulkRefused)}, dead, 0, ReasonPartial},
		{"a bulk that is refused as a whole", Response{Status: 200, Body: []byte(`{"errors":true,"items":[{"index":{"status":429}},{"index":{"status":400}}]}`)}, retry, 0, "http_429"},
		{"a bulk that is wrong as a whole", Response{Status: 200, Body: []byte(`{"errors":true,"items":[{"index":{"status":400}}]}`)}, dead, 0, "http_400"},
		{"a bulk of which we have the beginning", Response{Status: 200, Body: []byte(bulkRefused[:100])}, dead, 0, ReasonPartial},
		{"errors that are a list", Response{Status: 200, Body: []byte(`{"errors":[],"data":1}`)}, done, 0, ""},
		{"errors deeper", Response{Status: 200, Body: []byte(`{"a":{"errors":true}}`)}, done, 0, ""},
		{"207, all accepted", Response{Status: 207, Body: []byte(`{"results":[{"status":200},{"status":"201"}]}`)}, done, 0, ""},
		{"207, some refused", Response{Status: 207, Body: []byte(`[{"statusCode":200},{"statusCode":404}]`)}, dead, 0, ReasonPartial},
		{"207, all refused, with a time", Response{Status: 207, Header: header("Retry-After: 9"), Body: []byte(`[{"status":429}]`)}, held, 9 * time.Second, "http_429"},
		{"207 of WebDAV", Response{Status: 207, Body: []byte(`<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"/>`)}, dead, 0, ReasonPartial},
		{"a bulk, compressed", Response{Status: 200, Header: header("Content-Encoding: gzip"), Body: zipped(bulkRefused)}, dead, 0, ReasonPartial},
		{"RetryInfo, compressed", Response{Status: 503, Header: header("Content-Encoding: gzip\nContent-Type: application/json"), Body: zipped(`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"}]}}`)}, held, 1500 * time.Millisecond, "http_503"},
		{"not what it says", Response{Status: 200, Header: header("Content-Encoding: gzip"), Body: []byte(bulkRefused)}, dead, 0, ReasonPartial},
		{"RetryInfo", Response{Status: 503, Body: []byte(`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"}]}}`)}, held, 1500 * time.Millisecond, "http_503"},
	} {
		if c.r.Header == nil {
			c.r.Header = http.Header{}
		}
		c.r.At = noon
		policy := Policy{Statuses: listed.Statuses, Hold: true, HoldAtZero: true}
		got := policy.Judge(&c.r)
		if got.Result != c.want || got.RetryAfter != c.wait || got.Reason != c.reason {
			t.Errorf("%s: %+v, want %s %s for %s", c.name, got, c.want, c.reason, c.wait)
		}
	}
}

// zipped is a text, compressed.
func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // it keeps an error for Close
	_ = w.Close()
	return b.Bytes()
}

// A compressed body is read to JudgedBytes of its text, however large the text is.
func TestTextOfALargeBody(t *testing.T) {
	t.Parallel()
	r := Response{Header: header("Content-Encoding: gzip"), Body: zipped(strings.Repeat("x", 40<<20))}
	must.Equal(t, len(r.Text()), JudgedBytes, "bytes")
}

// A wait until a time is as long as the sender of the response means, whatever its clock says.
func TestWaitsByTheClockOfTheResponse(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{0, 20 * time.Second, -20 * time.Second, 5 * time.Minute, -5 * time.Minute, 26 * time.Hour, -9 * time.Hour} {
		theirs := noon.Add(offset)
		for _, named := range []http.Header{
			{"Retry-After": {theirs.Add(30 * time.Second).Format(http.TimeFormat)}},
			{"Retry-After": {theirs.Add(30 * time.Second).Format(time.RFC3339)}},
			{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {unix(theirs.Add(30 * time.Second))}},
			{"Retry-After": {"30"}},
		} {
			named.Set("Date", theirs.Format(http.TimeFormat))
			got := DefaultPolicy().Judge(&Response{Status: 429, Header: named, At: noon})
			if got.Result != held || got.RetryAfter < 28*time.Second || got.RetryAfter > 32*time.Second {
				t.Errorf("clock %s ahead, %v: held %s, want 30s", offset, named, got.RetryAfter)
			}
		}
	}
	cached := http.Header{"Date": {noon.Add(-time.Minute).Format(http.TimeFormat)}, "Age": {"60"}, "Retry-After": {noon.Add(30 * time.Second).Format(http.TimeFormat)}}
	must.Equal(t, DefaultPolicy().Judge(&Response{Status: 429, Header: cached, At: noon}).RetryAfter, 30*time.Second, "from a cache, want 30s")
}
