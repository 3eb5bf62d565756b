package console_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// behind is a console behind a proxy at an address, which names its users.
func behind(address string) console.Config {
	return console.Config{Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix(address)}}, UserHeader: "x-forwarded-user", UserKey: "on-call"}
}

var onCall = keyOf("on-call", []string{"*"}, apikey.RoleRead, apikey.RoleOperate)

const alice = "alice@example.com"

// A user of a trusted proxy needs no login, has the rights of one key, and is the author of what it does.
func TestUserOfProxy(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, behind("127.0.0.1/32"), onCall)
	v := s.visitor()
	as := func(method, path string, form url.Values) seen {
		t.Helper()
		return v.do(method, path, form, "X-Forwarded-User", alice, "X-Forwarded-For", "198.51.100.7")
	}
	page := as(http.MethodGet, "/console/buckets/letters", nil)
	page.want(t, http.StatusOK, alice+", key on-call", "do/pause")
	if strings.Contains(page.text, "Log out") || strings.Contains(page.text, "do/set") || page.header.Get("Set-Cookie") != "" {
		t.Errorf("it has a session, or more rights than its key: %s", page.text)
	}
	as(http.MethodPost, "/console/buckets/letters/do/pause", url.Values{"reason": {"a test"}}).want(t, http.StatusOK, "by on-call (alice@example.com): a test.")
	as(http.MethodPost, "/console/buckets/letters/do/set", url.Values{"rate": {"9/h"}}).want(t, http.StatusForbidden, "lacks the role admin")
	as(http.MethodGet, "/console/audit", nil).want(t, http.StatusOK, "<td>on-call (alice@example.com)</td><td>198.51.100.7</td><td>pauseBucket</td>")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if page := as(method, "/console/login", url.Values{"key": {"on-call"}, "next": {"fleet"}}); strings.Contains(page.at, "login") || page.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: the login leads to %s", method, page.at)
		}
	}
	must.Equal(t, len(s.redis.Keys(t.Context(), "tundish:{fleet}:session*").Val()), 0, "sessions")
	must.Equal(t, as(http.MethodPost, "/console/logout", url.Values{}).at, "/console/", "a logout leads to")
	as(http.MethodGet, "/v1/buckets", nil).want(t, http.StatusUnauthorized) // the header is of the console alone

	s.handler.SetKeys([]apikey.Key{keyOf("other", []string{"*"}, apikey.RoleAdmin)})
	as(http.MethodGet, "/console/", nil).want(t, http.StatusForbidden, "console.user_key", "on-call")
	s.handler.SetKeys(nil)
	must.Equal(t, as(http.MethodGet, "/console/", nil).status, http.StatusForbidden, "without keys a user of the proxy may do everything")
}

// A session goes on beside: it is that of the visitor as long as no proxy names a user.
func TestUserBeforeSession(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, behind("127.0.0.1/32"), onCall, keyOf("root", []string{"*"}, apikey.RoleAdmin))
	v := s.visitor()
	v.login("root").want(t, http.StatusOK, "key root", "Log out")
	v.do(http.MethodGet, "/console/", nil, "X-Forwarded-User", alice).want(t, http.StatusOK, alice+", key on-call")
	v.get("/console/").want(t, http.StatusOK, "key root")
}

// From any other address the header counts for nothing.
func TestUserFromElsewhere(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]console.Config{
		"another proxy": behind("192.0.2.0/24"), "none is configured": {}, "no header is": {Proxies: behind("127.0.0.1/32").Proxies},
	} {
		v := newSiteWith(t, cfg, onCall).visitor()
		for _, headers := range [][]string{{"X-Forwarded-User", alice}, {"X-Forwarded-User", alice, "X-Forwarded-For", "192.0.2.1"}} {
			if page := v.do(http.MethodGet, "/console/", nil, headers...); !strings.HasPrefix(page.at, "/console/login") {
				t.Errorf("%s: %q is let in: %s", name, headers, page.at)
			}
		}
		v.do(http.MethodPost, "/console/buckets/letters/do/pause", url.Values{}, "X-Forwarded-User", alice).want(t, http.StatusUnauthorized)
	}
}

// What the header has is a name, or the request is refused. A name with markup is shown as text.
func TestUserNames(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, behind("127.0.0.1/32"), onCall)
	v := s.visitor()
	long := strings.Repeat("é", 200)
	for _, user := range []string{"a", "Zoë Ångström", "名前", long} {
		v.do(http.MethodGet, "/console/", nil, "X-Forwarded-User", user).want(t, http.StatusOK, user+", key on-call")
	}
	page := v.do(http.MethodGet, "/console/", nil, "X-Forwarded-User", `"><script>alert(1)</script>{{.}}`)
	page.want(t, http.StatusOK, "&lt;script&gt;alert(1)&lt;/script&gt;{{.}}, key on-call")
	if strings.Contains(page.text, "<script>alert") {
		t.Error(page.text)
	}
	for name, headers := range map[string][]string{
		"too long": {long + "a"}, "empty": {""}, "blank": {" \t "}, "U+202E": {"alice\u202e"}, "two lines": {alice, alice}, "no UTF-8": {"alice\xff"},
		"a tab": {"alice\tadmin"}, "an empty one before": {"", alice}, "C1": {"alice\u0085"}, "zero width": {"al\u200bice"},
	} {
		var pairs []string
		for _, value := range headers {
			pairs = append(pairs, "X-Forwarded-User", value)
		}
		for _, path := range []string{"/console/", "/console/login", "/console/stream"} {
			if page := v.do(http.MethodGet, path, nil, pairs...); page.status != http.StatusBadRequest || !strings.Contains(page.text, "X-Forwarded-User") {
				t.Errorf("%s: %s: %d %s", name, path, page.status, page.text)
			}
		}
		must.Equal(t, v.do(http.MethodPost, "/console/buckets/letters/do/pause", url.Values{}, pairs...).status, http.StatusBadRequest, "%s: a form", name)
	}
	if paused := s.visitor().do(http.MethodGet, "/console/buckets/letters", nil, "X-Forwarded-User", alice); strings.Contains(paused.text, "<strong>paused</strong>") {
		t.Error("a request that was refused has changed something")
	}
}

// Behind a trusted proxy wrong keys count for each client; nobody chooses what it is counted as.
func TestAddressesOfLogins(t *testing.T) {
	t.Parallel()
	type client func(i int) string
	always := func(header string) client { return func(int) string { return header } }
	for name, c := range map[string]struct {
		proxy string
		wrong client
		then  string
		held  bool // then, too
	}{
		"two clients of the proxy":        {"127.0.0.1/32", always("198.51.100.1"), "198.51.100.2", false},
		"one client":                      {"127.0.0.1/32", always("198.51.100.1"), "198.51.100.1", true},
		"one that sends addresses itself": {"127.0.0.1/32", func(i int) string { return fmt.Sprintf("203.0.113.%d, 198.51.100.1", i) }, "203.0.113.99, 198.51.100.1", true},
		"a network of IPv6":               {"127.0.0.1/32", func(i int) string { return fmt.Sprintf("2001:db8::%d", i) }, "2001:db8::99", true},
		"no trusted proxy":                {"192.0.2.1/32", func(i int) string { return fmt.Sprintf("203.0.113.%d", i) }, "203.0.113.99", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, console.Config{Proxies: behind(c.proxy).Proxies}, onCall)
			v := s.visitor()
			attempt := func(header string) int {
				return v.do(http.MethodPost, "/console/login", url.Values{"key": {"wrong"}}, "X-Forwarded-For", header).status
			}
			refused := 0
			for i := range 25 { // over the end of a minute, too
				if attempt(c.wrong(i)) == http.StatusTooManyRequests {
					refused++
				}
			}
			if refused < 5 {
				t.Errorf("%d of 25 attempts are refused", refused)
			}
			held := false
			for range 11 { // a minute may have ended just before
				held = held || attempt(c.then) == http.StatusTooManyRequests
				if !c.held {
					break
				}
			}
			must.Equal(t, held, c.held, "%s is held up", c.then)
		})
	}
}

// The address of a login is that of the client.
func TestAddressInAudit(t *testing.T) {
	t.Parallel()
	for proxy, want := range map[string]string{"127.0.0.1/32": "198.51.100.1", "192.0.2.1/32": "127.0.0.1"} {
		s := newSiteWith(t, console.Config{Proxies: behind(proxy).Proxies}, onCall)
		v := s.visitor()
		v.do(http.MethodPost, "/console/login", url.Values{"key": {"on-call"}}, "X-Forwarded-For", "203.0.113.9, 198.51.100.1").want(t, http.StatusOK)
		v.get("/console/audit?logins=true").want(t, http.StatusOK, "<td>key on-call</td><td>"+want+"</td><td>login</td>")
	}
}

// Forms of the public address are taken, by the pages alone; where that has TLS, the cookie is for TLS.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	for origin, takes := range map[string]bool{"": false, "http://ops.example.com": true, "https://ops.example.com": false} {
		s := newSiteWith(t, console.Config{Origin: origin}, onCall)
		v := s.visitor()
		v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		page := v.do(http.MethodPost, "/console/login", url.Values{"key": {"on-call"}}, "Origin", "http://ops.example.com")
		if takes != (page.status == http.StatusSeeOther) || !takes && page.status != http.StatusForbidden {
			t.Errorf("%q: a form of the public address: %d", origin, page.status)
		}
		page = v.do(http.MethodPost, "/console/login", url.Values{"key": {"on-call"}})
		if secure := strings.Contains(page.header.Get("Set-Cookie"), "Secure"); secure != strings.HasPrefix(origin, "https:") {
			t.Errorf("%q: %s", origin, page.header.Get("Set-Cookie"))
		}
		for _, other := range []string{"http://ops.example.com.evil.example", "http://ops.example.com:81", "null"} {
			if page := v.do(http.MethodPost, "/console/login", url.Values{"key": {"on-call"}}, "Origin", other); page.status != http.StatusForbidden {
				t.Errorf("%q: a form of %s: %d", origin, other, page.status)
			}
		}
		page = v.do(http.MethodPost, "/v1/buckets/letters/pause", nil, "Origin", "http://ops.example.com", "Authorization", "Bearer on-call")
		must.Equal(t, page.status, http.StatusForbidden, "%q: the API takes a form of it", origin)
	}
}

// A key that only reads sees no payload where they are hidden, and a page says why.
func TestHiddenPayloads(t *testing.T) {
	t.Parallel()
	const secret, sentence = "4111111111111111", "Payloads are hidden from keys that only read."
	keys := []apikey.Key{onCall, keyOf("reader", []string{"*"}, apikey.RoleRead), keyOf("sender", []string{"*"}, apikey.RoleRead, apikey.RoleEnqueue), keyOf("root", []string{"*"}, apikey.RoleAdmin)}
	for _, hides := range []bool{false, true} {
		s := newSiteWith(t, console.Config{HidePayloads: hides}, keys...)
		s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte(`{"card":"` + secret + `"}`)}, shaper.Job{Bucket: "flows", ID: "a", Flow: "acme", Payload: []byte("\xff" + secret)})
		for i := range keys {
			v, hidden := s.visitor(), hides && (keys[i].Name == "reader" || keys[i].Name == "sender")
			v.login(keys[i].Name).want(t, http.StatusOK)
			page := v.get("/console/jobs?id=a")
			page.want(t, http.StatusOK, "a in ")
			if strings.Contains(page.text, secret) == hidden || strings.Contains(page.text, sentence) != hidden || strings.Contains(page.text, "<h3>Payload") == hidden {
				t.Errorf("hidden: %t; the page of %s: %s", hides, keys[i].Name, page.text)
			}
			for _, path := range pagePaths {
				if page := v.get(path); hidden && strings.Contains(page.text, secret[:8]) {
					t.Errorf("%s shows a payload to %s", path, keys[i].Name)
				}
			}
		}
	}
}

// A colour stands beside the name, for which it is no substitute.
func TestColour(t *testing.T) {
	t.Parallel()
	newSiteWith(t, console.Config{Colour: "red"}).visitor().get("/console/").want(t, http.StatusOK, `<span class="name"><span class="mark red"></span> staging</span>`)
	newSite(t).visitor().get("/console/").want(t, http.StatusOK, `<span class="name">staging</span>`)
}

// Users of a proxy have one key, and shares of their own: one that opens as many streams as it may leaves some to the others.
func TestUsersOfProxyShareStreams(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, behind("127.0.0.1/32"), onCall)
	open := func(user string) int {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/console/stream", http.NoBody))(t)
		request.Header.Set("X-Forwarded-User", user)
		response, err := http.DefaultClient.Do(request)
		must.OK(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	n := 0
	for open(alice) == http.StatusOK {
		n++
	}
	must.Equal(t, n, 100, "one user has streams of 200")
	must.Equal(t, open("bob@example.com"), http.StatusOK, "another user gets no stream")
}
