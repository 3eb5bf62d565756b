package llm

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// provider answers what its test says, and notes the last body.
type provider struct {
	*httptest.Server
	status int
	header http.Header
	answer string
	got    *http.Request
	body   string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{status: http.StatusOK, header: http.Header{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.got, p.body = r, string(body)
		for name, values := range p.header {
			w.Header()[name] = values
		}
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.answer)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) config(api API) Config {
	c := DefaultConfig(api)
	c.HTTP.BaseURL, c.HTTP.AllowNetworks, c.HTTP.Timeout = p.URL, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, 10*time.Second
	return c
}

func workerOf(t *testing.T, c Config) *Worker {
	t.Helper()
	w := must.Get(New(c, nil, nil))(t)
	t.Cleanup(w.Close)
	return w
}

// deliver delivers a request of which so many bytes of the answer are wanted.
func deliver(t *testing.T, w *Worker, body string, wanted int64) shaper.Outcome {
	t.Helper()
	a := shaper.NewAttempt(time.Now(), time.Minute, nil)
	a.ID, a.URL, a.Payload, a.AnswerBytes = "job-1", "/v1/chat/completions", []byte(body), wanted
	return w.Deliver(t.Context(), a)
}

// The request arrives as it was given, with the credentials of the bucket. The usage is read whether the answer is wanted or not.
func TestDeliver(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.answer = chatAnswer
	c := p.config(OpenAI)
	c.HTTP.Auth.Bearer = "hunter2"
	w := workerOf(t, c)
	for _, wanted := range []int64{0, 5, 1 << 20} {
		outcome := deliver(t, w, chat(""), wanted)
		if outcome.Result != shaper.ResultDone || outcome.Used.String() != "input:1200,output:9" {
			t.Errorf("%d bytes wanted: %+v", wanted, outcome)
		}
		if use := outcome.Use; use == nil || *use != (shaper.Use{Model: "m", Input: 1200, Output: 9}) {
			t.Errorf("%d bytes wanted: it used %+v", wanted, use)
		}
		answer := outcome.Answer
		switch {
		case (answer == nil) != (wanted == 0):
			t.Errorf("%d bytes wanted: the answer is %+v", wanted, answer)
		case wanted == 5 && (string(answer.Body) != chatAnswer[:5] || !answer.Cut || answer.Status != 200):
			t.Errorf("five bytes wanted: the answer is %+v", answer)
		case wanted > 5 && (string(answer.Body) != chatAnswer || answer.Cut):
			t.Errorf("the whole answer wanted: it is %+v", answer)
		}
	}
	if p.got.URL.Path != "/v1/chat/completions" || p.body != chat("") || p.got.Header.Get("Authorization") != "Bearer hunter2" || p.got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the provider saw %s %q with %v", p.got.URL, p.body, p.got.Header)
	}
	if outcome := deliver(t, w, chat(`,"max_tokens":777`), 0); outcome.Used.String() != "input:1200,output:777" {
		t.Errorf("with a maximum that counts: %+v", outcome)
	}
}

// An answer above the bound is done, but its usage is not read.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.answer = `{"data":"` + strings.Repeat("a", maxAnswer) + `","usage":{"prompt_tokens":1}}`
	outcome := deliver(t, workerOf(t, p.config(OpenAI)), chat(""), 0)
	if outcome.Result != shaper.ResultDone || outcome.Used != nil || outcome.Answer != nil {
		t.Errorf("%s uses %s, and has the answer %v", outcome.Result, outcome.Used, outcome.Answer != nil)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	asReserved, nothing := shaper.Units(nil), shaper.Units{}
	for _, c := range []struct {
		name   string
		api    API
		status int
		header http.Header
		answer string
		result shaper.Result
		wait   time.Duration
		reason string
		used   shaper.Units
	}{
		{"refused", OpenAI, 400, nil, `{"error":{"type":"invalid_request_error"}}`, shaper.ResultDead, 0, "http_400", asReserved},
		{"refused", Anthropic, 400, nil, `{"error":{"type":"invalid_request_error"}}`, shaper.ResultDead, 0, "http_400", nothing},
		{"failing", OpenAI, 500, nil, "", shaper.ResultRetry, 0, "http_500", asReserved},
		{"failing", Anthropic, 500, nil, "", shaper.ResultRetry, 0, "http_500", nothing},
		{"overloaded", Anthropic, 529, nil, overloaded, shaper.ResultHeld, time.Second, "http_529", nothing},
		{"out of money", OpenAI, 429, nil, noQuota, shaper.ResultHeld, shaper.MaxHold, "billing", asReserved},
		{"out of money", Anthropic, 402, nil, billing, shaper.ResultHeld, shaper.MaxHold, "billing", nothing},
		{"at the spend limit", Anthropic, 429, nil, spendLimit, shaper.ResultHeld, shaper.MaxHold, "billing", nothing},
		{"Gemini", OpenAI, 429, nil, "[" + gemini("45.8s") + "]", shaper.ResultHeld, 45800 * time.Millisecond, "http_429", asReserved},
		{"the limit of a project", OpenAI, 429, http.Header{
			"X-Ratelimit-Remaining-Project-Tokens": {"0"}, "X-Ratelimit-Reset-Project-Tokens": {"6m0s"},
		}, rateLimit, shaper.ResultHeld, 6 * time.Minute, "http_429", asReserved},
	} {
		p := newProvider(t)
		p.status, p.header, p.answer = c.status, c.header, c.answer
		got := deliver(t, workerOf(t, p.config(c.api)), chat(""), 1<<10)
		if got.Result != c.result || got.RetryAfter != c.wait || got.Reason != c.reason || got.Use != nil || got.Used.String() != c.used.String() || (got.Used == nil) != (c.used == nil) {
			t.Errorf("%s %s: %+v, want %s after %s, used %v", c.api, c.name, got, c.result, c.wait, c.used)
		}
		if got.Answer == nil || got.Answer.Status != c.status || string(got.Answer.Body) != c.answer {
			t.Errorf("%s %s: the answer is %+v", c.api, c.name, got.Answer)
		}
	}
}

// Without an answer a request may have used what it reserved, and one that was not sent says nothing of the provider.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	w := workerOf(t, p.config(Anthropic))
	for _, body := range []string{"", "canary", chat(`,"stream":true`)} {
		got := deliver(t, w, body, 0)
		if got.Result != shaper.ResultDead || got.Reason != workers.ReasonInvalid || got.Signal != shaper.SignalNone || strings.Contains(got.Detail, "canary") {
			t.Errorf("%q: %+v", body, got)
		}
	}
	if p.got != nil {
		t.Errorf("the provider saw %q", p.body)
	}
	p.Close()
	if got := deliver(t, w, chat(""), 0); got.Result != shaper.ResultRetry || got.Used != nil || got.Use != nil || got.Signal != shaper.SignalFailed {
		t.Errorf("of a provider that is away: %+v", got)
	}
}

// What a worker learns is known to the programs that share it.
func TestDeliverUpdatesEstimates(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.answer = messagesAnswer
	c, learned := p.config(Anthropic), &LearnedEstimates{}
	w := must.Get(New(c, learned, nil))(t)
	t.Cleanup(w.Close)
	body := chat(`,"max_tokens":4096`)
	before := must.Get(Estimate(c, "", []byte(body), learned))(t)
	for range 10 {
		deliver(t, w, body, 0)
	}
	after, err := Estimate(c, "", []byte(body), learned)
	if err != nil || before.String() != "input:7,output:500" || after.String() != "input:209,output:393" {
		t.Errorf("reserves %s, then %s: %v", before, after, err)
	}
}
