package httpworker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// Auth are the credentials that requests carry: one of the four, or none. They are never stored in Redis.
type Auth struct {
	Bearer string
	Basic  Basic
	Header Header
	OAuth2 OAuth2
}

// Basic are a user and a password (RFC 7617).
type Basic struct{ User, Password string }

// Header is a header of any name, such as X-API-Key.
type Header struct{ Name, Value string }

// OAuth2 are client credentials (RFC 6749, 4.4). The worker fetches a token, uses it for all requests, and fetches the next one while it is still good.
// A token that the API rejects with 401 is replaced, at most every 30 seconds. A request that would depart late because it waited for a token gives its
// permit back.
type OAuth2 struct {
	TokenURL, ClientID, ClientSecret string

	Scopes []string
	Params map[string]string // further parameters of a request for a token, such as audience or resource
	Style  OAuth2Style       // how the client identifies itself; "" means OAuth2Basic
}

// OAuth2Style is where a token request has the client's id and secret (RFC 6749, 2.3.1). Only one style is tried: some servers lock a client after a
// single request in the wrong style.
type OAuth2Style string

// The styles of a request for a token.
const (
	OAuth2Basic OAuth2Style = "basic" // in the header Authorization: every server has to accept it
	OAuth2Body  OAuth2Style = "body"  // as parameters of the body
)

// OAuth2Styles returns every style.
func OAuth2Styles() []OAuth2Style { return []OAuth2Style{OAuth2Basic, OAuth2Body} }

func (a Auth) kinds() (kinds []string) {
	for _, one := range []struct {
		name  string
		given bool
	}{
		{"bearer", a.Bearer != ""},
		{"basic", a.Basic != Basic{}},
		{"header", a.Header != Header{}},
		{"oauth2", a.OAuth2.TokenURL != "" || a.OAuth2.ClientID != "" || a.OAuth2.ClientSecret != ""},
	} {
		if one.given {
			kinds = append(kinds, one.name)
		}
	}
	return kinds
}

// validate reports every fault. None repeats a secret.
func (a Auth) validate(table string, sending outgoing.Config, fail func(key, format string, args ...any)) {
	kinds := a.kinds()
	if len(kinds) > 1 {
		fail("auth", "has %s: want one of them", strings.Join(kinds, " and "))
		return
	}
	value := func(key, text string) {
		if !httpguts.ValidHeaderFieldValue(text) {
			fail(key, "holds characters that no header can")
		}
	}
	value("auth.bearer", a.Bearer)
	if strings.Contains(a.Basic.User, ":") {
		fail("auth.basic.user", "holds a colon, which ends a user's name (RFC 7617)")
	}
	if a.Header != (Header{}) {
		if !httpguts.ValidHeaderFieldName(a.Header.Name) || outgoing.CheckHeaders(map[string][]string{a.Header.Name: {"x"}}) != nil {
			fail("auth.header.name", "%q: is not the name of a header that a request may have", a.Header.Name)
		}
		if a.Header.Value == "" {
			fail("auth.header.value", "is missing")
		}
		value("auth.header.value", a.Header.Value)
	}
	if o := a.OAuth2; len(kinds) > 0 && kinds[0] == "oauth2" {
		t, err := outgoing.ParseURL(o.TokenURL)
		if err != nil {
			fail("auth.oauth2.token_url", "%v", err)
		} else if err := sending.CheckAddress(table, t.Origin); err != nil {
			fail("auth.oauth2.token_url", "%v", err)
		}
		if o.ClientID == "" {
			fail("auth.oauth2.client_id", "is missing")
		}
		if o.ClientSecret == "" {
			fail("auth.oauth2.client_secret", "is missing")
		}
		if o.Style != "" && !slices.Contains(OAuth2Styles(), o.Style) {
			fail("auth.oauth2.style", "%q: want \"basic\" or \"body\"", o.Style)
		}
		for name := range o.Params {
			if name == "" || slices.Contains([]string{"grant_type", "client_id", "client_secret", "scope"}, name) {
				fail("auth.oauth2.params", "%q: is no further parameter: client_id, client_secret and scopes have keys of their own", name)
			}
		}
	}
}

// Headers returns the names of the headers that the credentials use, in lower case.
func (a Auth) Headers() []string {
	switch {
	case a.Header != (Header{}):
		return []string{strings.ToLower(a.Header.Name)}
	case len(a.kinds()) > 0:
		return []string{"authorization"}
	}
	return nil
}

// errToken says that there is no token: nothing is sent, and the API is not to blame.
var errToken = errors.New("no token from the OAuth server")

// tokens fetches tokens, one at a time, and keeps the last one while it is good.
type tokens struct {
	config clientcredentials.Config
	client *http.Client

	closed context.Context // ends the request for a token that no job waits for any more
	close  func()
	wg     sync.WaitGroup

	mu        sync.Mutex
	last      *oauth2.Token
	usedUntil time.Time     // of one that ends
	renewAt   time.Time     // when the next one is requested
	fetching  *tokenRequest // that is under way; nil without one
	fault     error         // of the last try, nil if it gave a token
	failedAt  time.Time     // when that was
	failures  int           // in a row
	secret    func() string // the client's current secret

	rejectedAt time.Time // when a token was last replaced after a 401
}

// tokenRequest is one request for a token, on behalf of all requests that wait. It keeps its result: the API may reject the token before they read it.
type tokenRequest struct {
	done  chan struct{}
	token *oauth2.Token
	fault error
}

const (
	tokenTimeout = 10 * time.Second // of a request for a token
	tokenLeft    = 30 * time.Second // a token with less time left is not used any more, or with less than 25 % of its life if that is shorter,
	leastLeft    = 5 * time.Second  // but not less than this. The next token is requested as long before that
	tokenPause   = time.Second      // after a try that failed: its waiters do not try one after the other. Doubled with each further failure,
	longestPause = time.Minute      // up to this
	rejectPause  = 30 * time.Second // after a token was replaced: if the next one is rejected too, tokens are not the cause

	// lateForToken is how long after its slot a request may depart that had to wait for a token. For an API that counts strictly, the requests after a
	// later one would follow too closely.
	lateForToken = 10 * time.Millisecond
)

// newTokens returns the source of tokens, nil without OAuth. secret returns the client's current secret.
func newTokens(o OAuth2, allowed []netip.Prefix, secret func() string) *tokens {
	if o.TokenURL == "" {
		return nil
	}
	style, params := oauth2.AuthStyleInHeader, url.Values{}
	if o.Style == OAuth2Body {
		style = oauth2.AuthStyleInParams
	}
	for name, value := range o.Params {
		params.Set(name, value)
	}
	t := &tokens{
		config: clientcredentials.Config{ClientID: o.ClientID, TokenURL: o.TokenURL, Scopes: o.Scopes, EndpointParams: params, AuthStyle: style},
		secret: secret,
		client: &http.Client{
			Timeout:   tokenTimeout,
			Transport: tokenTransport{outgoing.GuardedTransport(allowed)},
			// A redirect would send the client's secret elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	t.closed, t.close = context.WithCancel(context.Background())
	return t
}

// stop ends the request for a token that is under way.
func (t *tokens) stop() {
	t.close()
	t.wg.Wait()
}

// token returns a valid token. waited says that it had to be fetched first: one round trip for all requests that wait. The next token is fetched before
// the last one ends, so no job waits for it. The error is an errToken and repeats no secret.
func (t *tokens) token(ctx context.Context) (token *oauth2.Token, waited bool, err error) {
	t.mu.Lock()
	now := time.Now()
	paused := t.fault != nil && now.Sub(t.failedAt) < t.pause()
	if t.last != nil && (t.last.Expiry.IsZero() || now.Before(t.usedUntil)) {
		if !t.last.Expiry.IsZero() && !now.Before(t.renewAt) && !paused {
			t.fetch()
		}
		defer t.mu.Unlock()
		return t.last, false, nil
	}
	if paused {
		defer t.mu.Unlock()
		return nil, false, t.fault
	}
	request := t.fetch()
	t.mu.Unlock()
	select {
	case <-request.done:
		return request.token, true, request.fault
	case <-ctx.Done():
		return nil, true, fmt.Errorf("%w: %w", errToken, ctx.Err())
	}
}

// pause returns how long after a failure no token is requested. The lock is held.
func (t *tokens) pause() time.Duration {
	pause := tokenPause
	for range t.failures - 1 {
		if pause *= 2; pause >= longestPause {
			return longestPause
		}
	}
	return pause
}

// nextTry returns how long it is until a token may be requested again.
func (t *tokens) nextTry() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault == nil {
		return 0
	}
	return max(0, t.pause()-time.Since(t.failedAt))
}

// fetch requests a token, unless a request is under way. The lock is held.
func (t *tokens) fetch() *tokenRequest {
	if t.fetching != nil {
		return t.fetching
	}
	request := &tokenRequest{done: make(chan struct{})}
	t.fetching = request
	t.wg.Go(func() {
		asked, config := time.Now(), t.config
		config.ClientSecret = t.secret()
		token, err := config.Token(context.WithValue(t.closed, oauth2.HTTPClient, t.client))
		t.mu.Lock()
		defer t.mu.Unlock()
		defer close(request.done)
		t.fetching = nil
		if err != nil {
			t.fault, t.failedAt = tokenFault(err), time.Now()
			t.failures++
			request.fault = t.fault
			return
		}
		left := min(tokenLeft, max(leastLeft, token.Expiry.Sub(asked)/4))
		t.last, t.fault, t.failures, request.token = token, nil, 0, token
		t.usedUntil, t.renewAt = token.Expiry.Add(-left), token.Expiry.Add(-2*left)
	})
	return request
}

// tokenFault returns an errToken without the response's body, which may repeat the request. A fault of this host stays a [workers.LocalError].
func tokenFault(err error) error {
	if local, ok := errors.AsType[*workers.LocalError](err); ok {
		return fmt.Errorf("%w: %w", errToken, local)
	}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response != nil {
		text := fmt.Sprintf("it answers %d", refused.Response.StatusCode)
		if refused.ErrorCode != "" {
			text += " " + workers.Snippet([]byte(refused.ErrorCode))
		}
		if refused.ErrorCode == "invalid_client" || refused.Response.StatusCode == http.StatusUnauthorized {
			text += " (if the id and the secret are right, try the other auth.oauth2.style)"
		}
		return fmt.Errorf("%w: %s", errToken, text)
	}
	return fmt.Errorf("%w: %s", errToken, workers.ClassifyError(err).Detail)
}

// noToken returns the outcome of an attempt without a token. Nothing was sent, and no other job would have a token: all wait for the next try.
func (w *Worker) noToken(err error) shaper.Outcome {
	if _, isLocal := errors.AsType[*workers.LocalError](err); isLocal {
		return workers.ClassifyError(err)
	}
	return shaper.Outcome{
		Result: shaper.ResultHeld, Reason: workers.ReasonToken, Detail: workers.Snippet([]byte(err.Error())), RetryAfter: w.tokens.nextTry(), Used: shaper.Units{},
	}
}

// reject drops a token that the API rejects, and requests another one. It keeps the token if another one was dropped less than a rejectPause ago: a path
// may respond with 401 to any token. It reports whether the next request has another token.
func (t *tokens) reject(token *oauth2.Token) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == token && time.Since(t.rejectedAt) >= rejectPause {
		t.last, t.rejectedAt = nil, time.Now()
		t.fetch()
	}
	return t.last != token
}

// set writes the credentials into the headers of a request.
func (a Auth) set(h http.Header, token *oauth2.Token) {
	switch {
	case token != nil:
		h.Set("Authorization", token.Type()+" "+token.AccessToken)
	case a.Bearer != "":
		h.Set("Authorization", "Bearer "+a.Bearer)
	case a.Basic != Basic{}:
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(a.Basic.User+":"+a.Basic.Password)))
	case a.Header != Header{}:
		h.Set(a.Header.Name, a.Header.Value)
	}
}
