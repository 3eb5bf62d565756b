package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// What was not done may be asked again: after any answer but a 2xx, and after none, the next request with the key reaches the API.
func TestProxySendsAgainWhatWasNotDone(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("a", []string{"*"}, apikey.RoleEnqueue))
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "broken off")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	none := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, tt := range map[string]struct {
		fails  http.HandlerFunc
		status int
	}{
		"302": {status(302), 302}, "400": {status(400), 400}, "401": {status(401), 401}, "404": {status(404), 404}, "409": {status(409), 409}, "422": {status(422), 422},
		"429": {status(429), 429}, "500": {status(500), 500}, "502": {status(502), 502}, "503": {status(503), 503}, "cut": {cut, 502}, "no answer": {none, 502},
	} {
		p.answerWith(tt.fails)
		p.http.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		post := func(body string) *answer {
			return p.do("POST", "/v1/proxy/api/x", body, "Idempotency-Key", "key "+name, "Api-Key", "a", "X-Stainless-Retry-Count", fmt.Sprint(time.Now()))
		}
		for range 3 { // however often
			if a := post("{}"); a.status != tt.status {
				t.Errorf("%s: %d %s", name, a.status, a.text)
			}
		}
		p.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); _, _ = io.WriteString(w, "done") })
		for range 2 {
			if a := post(`{"other":1}`); a.status != 201 || a.text != "done" {
				t.Errorf("%s: %d %s", name, a.status, a.text)
			}
		}
		post("{}").want(422, "id-reused") // of what was done
		calls := p.called()
		must.Equal(t, len(calls), 4, "%s: calls", name)
		for _, call := range calls {
			must.Equal(t, call.Header.Get("Idempotency-Key"), "key "+name, "%s: the API sees the key", name)
		}
		p.release("api")
	}
}

// A request that the API did not answer in time may be asked again under its key at once.
func TestProxySendsAgainAfterATimeout(t *testing.T) {
	t.Parallel()
	p := newProxyRigOf(t, func(_ *shaper.Bucket, config *httpworker.Config) { config.Timeout = 2 * time.Second }, keyOf("a", []string{"*"}, apikey.RoleEnqueue))
	post := func() *answer {
		return p.do("POST", "/v1/proxy/api/x", "{}", "Idempotency-Key", "k", "Api-Key", "a")
	}
	p.answerWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	post().want(502, "no-answer")
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); _, _ = io.WriteString(w, "done") })
	for range 2 { // the second one shares the answer
		if a := post(); a.status != 201 || a.text != "done" {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	must.Equal(t, len(p.called()), 2, "calls")
}

// release forgets what answers have said of the API of a bucket.
func (p *proxyRig) release(bucket string) {
	p.t.Helper()
	must.OK(p.t, p.redis.HDel(p.t.Context(), stored.Key(bucket, "pace"), "down").Err())
}

// Clients that ask for the same while a request is under way share it if it is done. If it is not, each of them has its own request sent, one after the
// other, until one is done. A client at another process takes part.
func TestProxySharesWhatIsDone(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("a", []string{"*"}, apikey.RoleEnqueue))
	for name, tt := range map[string]struct {
		failures, calls int
	}{
		"done at once":   {0, 1},
		"done at second": {1, 2}, // the client of the failed request gets its 500, or shares what is done by the time that it looks
		"never done":     {3, 3},
	} {
		var mu sync.Mutex
		n, asked, goOn := 0, make(chan struct{}), make(chan struct{})
		p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			n++
			first, fails := n == 1, n <= tt.failures
			mu.Unlock()
			if first {
				close(asked)
				<-goOn
			}
			if fails {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		headers := []string{"Api-Key", "a", "Idempotency-Key", name}
		answers := []<-chan int{p.start(t.Context(), "api", headers...)}
		<-asked
		answers = append(answers, p.start(t.Context(), "api", headers...), p.other.start(t.Context(), "api", headers...))
		until(t, func() bool { return len(p.client.Waiting()) == 2 && len(p.other.client.Waiting()) == 1 })
		untilDuplicates(t, p)
		close(goOn)
		got := map[int]int{}
		for _, one := range answers {
			got[<-one]++
		}
		if calls := len(p.called()); calls != tt.calls || got[500] > tt.failures || got[200]+got[500] != len(answers) {
			t.Errorf("%s: answers %v of %d calls, want %d calls and at most %d of 500", name, got, calls, tt.calls, tt.failures)
		}
		p.release("api")
	}
}

// untilDuplicates waits until both processes have had an answer to an enqueue since: another job of each is in.
func untilDuplicates(t *testing.T, p *proxyRig) {
	t.Helper()
	for _, at := range []*proxyRig{p, p.other} {
		ctx, leave := context.WithCancel(t.Context())
		left := at.start(ctx, "slow", "Api-Key", "a")
		p.untilJobs("slow", 1)
		leave()
		<-left
		p.untilJobs("slow", 0)
	}
}

// A process that dies while its client waits leaves no key behind: another one sends what was not done.
func TestProxyAfterADeadProcess(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("a", []string{"*"}, apikey.RoleEnqueue))
	asked, goOn := make(chan struct{}, 3), make(chan int, 3)
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(<-goOn)
	})
	headers := []string{"Api-Key", "a", "Idempotency-Key", "one"}
	ctx, die := context.WithCancel(t.Context())
	first := p.other.start(ctx, "api", headers...)
	<-asked
	die()
	<-first
	second := p.start(t.Context(), "api", headers...) // joins what nobody waits for any more
	until(t, func() bool { return len(p.client.Waiting()) == 1 })
	untilDuplicates(t, p)
	goOn <- 503
	<-asked
	goOn <- 200
	must.Equal(t, <-second, 200, "answered with")
	must.Equal(t, len(p.called()), 2, "calls")
}

// A key whose requests were given up often, and sent never, is as good as new.
func TestProxyKeyThatIsGivenUp(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("a", []string{"*"}, apikey.RoleEnqueue))
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		left := p.start(ctx, "slow", "Api-Key", "a", "Idempotency-Key", "again")
		p.untilJobs("slow", 1)
		leave()
		<-left
		p.untilJobs("slow", 0)
	}
	must.Equal(t, p.redis.LLen(t.Context(), stored.Key("slow", "seen_minute")).Val(), 1, "the bucket has entries of the key, want one")
}
