package test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// pageRules returns the rules for an API as docs/response-rules.md has them.
func pageRules(t *testing.T, api string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/response-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "<!-- rules: "+api+" -->\n```toml\n")
	text, _, ends := strings.Cut(rest, "```\n")
	if !found || !ends {
		t.Fatalf("docs/response-rules.md has no rules for %s", api)
	}
	return text
}

// limitedAPI is an API that refuses all requests for a while, now and then.
type limitedAPI struct {
	every int           // jobs accepted between two refusals of all
	ban   time.Duration // how long these last
	// refuse answers a request in the time of a ban, which lasts for so many seconds more. accept answers another one; nil is a 200.
	refuse func(w http.ResponseWriter, seconds int)
	accept func(w http.ResponseWriter)

	mu       sync.Mutex
	accepted map[string]int
	refused  []int // requests, of each ban
	late     int   // of these, in the last third of the ban
	until    time.Time
}

func (a *limitedAPI) respond(w http.ResponseWriter, r *http.Request, id string, _ int) {
	_, _ = io.Copy(io.Discard, r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := time.Until(a.until); left > 0 {
		a.refused[len(a.refused)-1]++
		if left < a.ban/3 {
			a.late++
		}
		a.refuse(w, int((left+time.Second-1)/time.Second))
		return
	}
	if a.accepted == nil {
		a.accepted = map[string]int{}
	}
	a.accepted[id]++
	if len(a.accepted)%a.every == 0 {
		a.until = time.Now().Add(a.ban)
		a.refused = append(a.refused, 0)
	}
	if a.accept != nil {
		a.accept(w)
		return
	}
	_, _ = io.WriteString(w, `{"ok":true}`)
}

// answerJSON writes a response in JSON. Headers are names and values in turn.
func answerJSON(w http.ResponseWriter, status int, body string, headers ...string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	for i := 0; i < len(headers); i += 2 {
		w.Header().Set(headers[i], headers[i+1])
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// TestLimitsOfAPIs: APIs say "less, and when" in their own ways, which docs/response-rules.md has rules for. The bucket holds until then: a job's only attempt
// is not spent, nothing that was refused counts as done, and the slots keep the rate.
func TestLimitsOfAPIs(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string // of the page; "" for none
		refuse func(w http.ResponseWriter, seconds int)
	}{
		"GitHub's 403 with a time": {rules: "github", refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 403, `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`, "Retry-After", strconv.Itoa(seconds))
		}},
		"GitHub's 403 at 0": {rules: "github", refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 403, `{"message":"API rate limit exceeded for user ID 1."}`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+int64(seconds), 10))
		}},
		"Shopify's 200": {rules: "shopify", refuse: func(w http.ResponseWriter, _ int) {
			answerJSON(w, 200, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":202,"actualQueryCost":null}}}`)
		}},
		"Slack's 200": {rules: "slack", refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 200, `{"ok":false,"error":"ratelimited"}`, "Retry-After", strconv.Itoa(seconds))
		}},
		"Slack's other word": {rules: "slack", refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 200, `{"ok":false,"error":"rate_limited"}`, "Retry-After", strconv.Itoa(seconds))
		}},
		"Telegram's body": {rules: "telegram", refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 429, fmt.Sprintf(`{"ok":false,"error_code":429,"description":"Too Many Requests: retry after %d","parameters":{"retry_after":%d}}`, seconds, seconds))
		}},
		"Google's RetryInfo": {rules: "google", refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 429, fmt.Sprintf(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%ds"}]}}`, seconds))
		}},
		"a 207 that refuses all": {refuse: func(w http.ResponseWriter, seconds int) {
			answerJSON(w, 207, `{"responses":[{"id":"1","status":429},{"id":"2","status":429}]}`, "Retry-After", strconv.Itoa(seconds))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			harness.BesideOthers(t)
			const rate, jobs, every = 50, 100, 40
			api := &limitedAPI{every: every, ban: 2 * time.Second, refuse: c.refuse}
			server := redistest.Start(t)
			slots := harness.Monitor(t, server)
			rules := ""
			if c.rules != "" {
				rules = pageRules(t, c.rules)
			}
			s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 1, Retry: "max_attempts = 1", Bucket: "breaker.failures = 0", More: rules, API: "headers = {}", Respond: api.respond})
			s.PostAs("limit", jobs, `,"path":"x"`)
			s.awaitDone(30 * time.Second)
			s.judgeLimited(api, jobs)
			if early := slots.Sorted().Early(rate); early >= time.Microsecond {
				t.Errorf("the slots of some window are %s ahead of the rate", early)
			}
			for _, n := range api.refused {
				if n == 0 || n > rate/2 {
					t.Errorf("%d requests during a ban of 2 s; want 1 to %d, those that were claimed when it began", n, rate/2)
				}
			}
		})
	}
}

// awaitDone waits until all jobs of the bucket are done. A dead letter fails the test.
func (s *system) awaitDone(limit time.Duration) {
	s.T.Helper()
	harness.Await(s.T, limit, "all jobs are done", func() bool {
		if dead := s.Inspector.ZCard(s.T.Context(), s.Key("dead")).Val(); dead > 0 {
			s.T.Fatalf("%d dead letters", dead)
		}
		return s.Unfinished() == 0
	})
}

// judgeLimited holds that each job was accepted once, and that none became a dead letter.
func (s *system) judgeLimited(api *limitedAPI, jobs int) {
	s.T.Helper()
	api.mu.Lock()
	defer api.mu.Unlock()
	dead := s.Inspector.ZCard(s.T.Context(), s.Key("dead")).Val()
	s.T.Logf("%d of %d jobs accepted, %d dead letters; refused in each ban %v, %d of them in its last third", len(api.accepted), jobs, dead, api.refused, api.late)
	if dead > 0 || len(api.accepted) != jobs {
		s.T.Errorf("%d of %d jobs accepted, %d dead letters; want all, and none", len(api.accepted), jobs, dead)
	}
	for id, n := range api.accepted {
		if n != 1 {
			s.T.Errorf("%s was accepted %d times", id, n)
		}
	}
}

// TestZeroRemaining: an API of 5 requests a second reports in each 200 how many remain. The bucket, which is faster, holds after the last one, and hardly
// any request is refused; one that does not hold at 0 is refused in most seconds.
func TestZeroRemaining(t *testing.T) {
	const rate, jobs, quota, few = 10, 30, 5, 2
	for _, hold := range []bool{true, false} {
		t.Run(fmt.Sprintf("hold_at_zero %t", hold), func(t *testing.T) {
			harness.BesideOthers(t)
			var mu sync.Mutex
			var ends time.Time
			used, refused := 0, 0
			accepted := map[string]int{}
			s := start(t, redistest.Start(t), harness.Plan{
				Rate: rate, Dispatchers: 1, Retry: "max_attempts = 1", Bucket: fmt.Sprintf("adapt = {hold_at_zero = %t, floor = \"100%%\"}", hold), API: "headers = {}",
				Respond: func(w http.ResponseWriter, _ *http.Request, id string, _ int) {
					mu.Lock()
					defer mu.Unlock()
					if now := time.Now(); now.After(ends) {
						ends, used = now.Add(time.Second), 0
					}
					if used++; used > quota {
						refused++
						answerJSON(w, 429, `{}`, "RateLimit", `"default";r=0;t=1`)
						return
					}
					accepted[id]++
					answerJSON(w, 200, `{}`, "RateLimit-Policy", `"default";q=5;w=1`, "RateLimit", fmt.Sprintf(`"default";r=%d;t=1`, quota-used))
				},
			})
			s.PostAs("zero", jobs, `,"path":"x"`)
			s.awaitDone(40 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%d of %d jobs accepted, %d requests refused", len(accepted), jobs, refused)
			if len(accepted) != jobs || hold != (refused <= few) {
				t.Errorf("%d of %d jobs accepted, %d requests refused", len(accepted), jobs, refused)
			}
		})
	}
}

// TestPartialResponses: a _bulk that refuses some documents is sent again by the rules of the page. A 207 that refuses some parts is a dead letter without
// them, and not done.
func TestPartialResponses(t *testing.T) {
	harness.BesideOthers(t)
	const rate, jobs, third = 50, 45, 3
	partial := map[string]string{
		"elasticsearch": `{"took":30,"errors":true,"items":[{"index":{"_index":"a","_id":"1","status":201}},{"index":{"_index":"a","_id":"2","status":429,"error":{"type":"es_rejected_execution_exception"}}}]}`,
		"":              `{"responses":[{"id":"1","status":201},{"id":"2","status":429}]}`,
	}
	for rules, body := range partial {
		t.Run(cmp.Or(rules, "207"), func(t *testing.T) {
			harness.BesideOthers(t)
			var mu sync.Mutex
			accepted, refused := map[string]int{}, map[string]int{}
			more := ""
			status := http.StatusMultiStatus
			if rules != "" {
				more, status = pageRules(t, rules), http.StatusOK
			}
			s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 1, More: more, API: "headers = {}", Bucket: "breaker.failures = 0", Respond: func(w http.ResponseWriter, _ *http.Request, id string, _ int) {
				mu.Lock()
				defer mu.Unlock()
				_, n, _ := strings.Cut(id, "-")
				if number, _ := strconv.Atoi(n); number%third == 0 && refused[id] == 0 {
					refused[id]++
					answerJSON(w, status, body)
					return
				}
				accepted[id]++
				answerJSON(w, 200, `{"took":30,"errors":false,"items":[{"index":{"_index":"a","_id":"1","status":201}},{"index":{"_index":"a","_id":"2","status":201}}]}`)
			}})
			s.PostAs("bulk", jobs, `,"path":"x"`)
			wantDead := int64(0)
			if rules == "" {
				wantDead = jobs / third
			}
			harness.Await(t, 30*time.Second, "all jobs are done or dead", func() bool { return s.Unfinished() == wantDead })
			mu.Lock()
			defer mu.Unlock()
			dead := s.Inspector.ZCard(t.Context(), s.Key("dead")).Val()
			t.Logf("%d of %d jobs accepted in full, %d dead letters, %d partial responses", len(accepted), jobs, dead, len(refused))
			if dead != wantDead || int64(len(accepted))+dead != jobs {
				t.Errorf("%d of %d jobs accepted in full, %d dead letters, want %d", len(accepted), jobs, dead, wantDead)
			}
		})
	}
}
