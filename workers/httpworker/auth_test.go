package httpworker

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper"
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
				if outcome.Result != shaper.ResultRetry || outcome.Reason != "http_401" {
					t.Errorf("%+v", outcome)
				}
			}
		})
	}
	group.Wait()
	if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone {
		t.Errorf("another path: %+v", outcome)
	}
	if n := server.count.Load(); n != 2 {
		t.Errorf("%d tokens for 40 answers of 401, want 2", n)
	}
}

// issuer issues a token for each request.
type issuer struct{ issued int }

func (i *issuer) RoundTrip(*http.Request) (*http.Response, error) {
	i.issued++
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"access_token":"t%d","token_type":"Bearer","expires_in":3600}`, i.issued))),
	}, nil
}

// Tokens that are not taken are replaced once a rejectPause.
func TestOneRefetchAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens, issuer := newTokens(OAuth2{TokenURL: "https://issuer.example/token"}, nil), &issuer{}
		tokens.client.Transport = issuer
		rejected := func() string {
			token, err := tokens.token(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tokens.reject(token)
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
