package httpworker

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/hostile"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// A path that answers 401 to any token has a token fetched again once, and other paths go on with it.
func TestPathThatTakesNoToken(t *testing.T) {
	t.Parallel()
	a, server := newAPI(t), newTokenServer(t, 3600)
	a.answer = func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/forbidden") {
			return http.StatusUnauthorized
		}
		return http.StatusOK
	}
	config := configOf(a)
	config.Auth = server.auth()
	w := workerOf(t, config)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 2 {
				outcome := deliver(t, w, func(attempt *shaper.Attempt) { attempt.URL = "/forbidden" })
				isRenewed := outcome.Result == shaper.ResultHeld && outcome.Reason == workers.ReasonCredentials
				if !isRenewed && (outcome.Result != shaper.ResultRetry || outcome.Reason != "http_401") {
					t.Errorf("%+v", outcome)
				}
			}
		})
	}
	group.Wait()
	if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone {
		t.Errorf("another path: %+v", outcome)
	}
	must.Equal(t, server.count.Load(), 2, "tokens for 40 answers of 401")
}

// issuer issues a token for each request.
type issuer struct {
	issued int
	life   int           // seconds, an hour if it is 0
	takes  time.Duration // for an answer
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.issued++
	select {
	case <-time.After(i.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"access_token":"t%d","token_type":"Bearer","expires_in":%d}`, i.issued, cmp.Or(i.life, 3600)))),
	}, nil
}

// answers is a server that answers all alike.
type answers struct {
	status int
	body   string
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// The answer of an OAuth server is read to 64 KiB, so what is made of it is small. A longer one is no token, and the status of a refusal is told.
func TestTokenAnswersAreBounded(t *testing.T) { //nolint:paralleltest // measures the heap
	const most = 8 << 20
	worst, highest := "", int64(0)
	ask := func(status int, body string) (err error) {
		tokens := newTokens(OAuth2{TokenURL: "https://issuer.example/token"}, nil, func() string { return "" })
		bounded, isBounded := tokens.client.Transport.(tokenTransport)
		if !isBounded {
			t.Fatal("its answers are not bounded")
		}
		bounded.next = answers{status, body}
		tokens.client.Transport = bounded
		_, _, err = tokens.token(t.Context())
		tokens.stop()
		return err
	}
	for _, size := range []int{60 << 10, 900 << 10} { // below the bound, and below that of package oauth2
		for kind, value := range hostile.Values(size) {
			for status, want := range map[int]string{http.StatusOK: "it answers with more than 64 KiB", http.StatusBadRequest: "it answers 400"} {
				body := `{"access_token":"t","token_type":"Bearer","more":` + value + `}`
				var err error
				cost := hostile.CostOf(func() { err = ask(status, body) })
				if isLong := len(body) > maxTokenAnswer; isLong && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s, %d: %v", kind, status, err)
				}
				if cost.Heap > highest {
					highest, worst = cost.Heap, kind
				}
			}
		}
	}
	if t.Logf("heap: %d bytes at most, of %s", highest, worst); highest > most {
		t.Errorf("%d bytes for %s: want %d at most", highest, worst, most)
	}
	for size, isToken := range map[int]bool{maxTokenAnswer: true, maxTokenAnswer + 1: false} {
		body := `{"access_token":"` + strings.Repeat("t", size-len(`{"access_token":""}`)) + `"}`
		if err := ask(http.StatusOK, body); (err == nil) != isToken {
			t.Errorf("a token in %d bytes: %v", size, err)
		}
	}
}

// Tokens that are not taken are replaced once a rejectPause.
func TestOneRefetchAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens, issuer := newTokens(OAuth2{TokenURL: "https://issuer.example/token"}, nil, func() string { return "" }), &issuer{}
		tokens.client.Transport = issuer
		rejected := func() string {
			token, _, err := tokens.token(t.Context())
			must.OK(t, err)
			tokens.reject(token)
			synctest.Wait()
			return token.AccessToken
		}
		got := []string{rejected(), rejected(), rejected()}
		time.Sleep(rejectPause - time.Nanosecond) //nolint:forbidigo // in a bubble: no time passes
		got = append(got, rejected())
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble: no time passes
		got = append(got, rejected(), rejected(), rejected())
		if want := "t1 t2 t2 t2 t2 t3 t3"; strings.Join(got, " ") != want {
			t.Errorf("used %q, want %q", got, want)
		}
	})
}

// The next token is fetched while the last one is good: only the first request waits. One that the issuer does not answer for costs nothing
// until the last one ends.
func TestTokenIsRenewedAhead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ life, renewed int }{{3600, 3540}, {60, 30}, {20, 10}} {
		synctest.Test(t, func(t *testing.T) {
			tokens, issuer := newTokens(OAuth2{TokenURL: "https://issuer.example/token"}, nil, func() string { return "" }), &issuer{life: c.life, takes: 200 * time.Millisecond}
			tokens.client.Transport = issuer
			defer tokens.stop()
			ask := func(want string, wantWait bool) {
				t.Helper()
				token, waited, err := tokens.token(t.Context())
				if err != nil || token.AccessToken != want || waited != wantWait {
					t.Errorf("%+v, waited %t, %v; want %s, waited %t", token, waited, err, want, wantWait)
				}
			}
			pass := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // in a bubble: no time passes
			ask("t1", true)
			ask("t1", false)
			pass(time.Duration(c.renewed)*time.Second - time.Nanosecond - issuer.takes)
			ask("t1", false)
			synctest.Wait()
			must.Equal(t, issuer.issued, 1, "life %d s: renewed early", c.life)
			pass(issuer.takes + time.Nanosecond)
			ask("t1", false)
			pass(issuer.takes)
			synctest.Wait()
			ask("t2", false)
		})
	}
}

// A request that had to wait for a token gives its permit back where it would leave late.
func TestRequestThatWaitsForAToken(t *testing.T) {
	t.Parallel()
	a, server := newAPI(t), newTokenServer(t, 3600)
	config := configOf(a)
	config.Auth = server.auth()
	w := workerOf(t, config)
	attempt := shaper.NewAttempt(time.Now().Add(-lateForToken), time.Minute, nil)
	attempt.ID = "job-1"
	if outcome := w.Deliver(t.Context(), attempt); outcome.Result != shaper.ResultReturned || outcome.Reason != workers.ReasonLate || a.last().method != "" {
		t.Errorf("late: %+v, the API saw %+v", outcome, a.last())
	}
	if outcome := w.Deliver(t.Context(), attempt); outcome.Result != shaper.ResultDone {
		t.Errorf("with the token at hand: %+v", outcome)
	}
}

// Who waited for a token gets it, also if somebody else had it rejected meanwhile.
func TestTokenThatIsRejectedAtOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			tokens, issuer := newTokens(OAuth2{TokenURL: "https://issuer.example/token"}, nil, func() string { return "" }), &issuer{takes: time.Second}
			tokens.client.Transport = issuer
			defer tokens.stop()
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					token, _, err := tokens.token(t.Context())
					if token == nil || err != nil {
						t.Errorf("%v, %v", token, err)
						return
					}
					tokens.reject(token)
				})
			}
			group.Wait()
		})
	}
}
