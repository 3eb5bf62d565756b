package console_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

var pagePaths = []string{
	"/console/", "/console/?q=let&sort=waiting", "/console/buckets/letters", "/console/buckets/flows", "/console/buckets/letters/dead", "/console/jobs", "/console/jobs?id=a", "/console/buckets/letters/jobs", "/console/buckets/flows/jobs?state=waiting&flow=acme",
	"/console/buckets/flows/flows", "/console/buckets/flows/flows?q=ac&failing=true", "/console/buckets/flows/flow?flow=acme", "/console/buckets/grouped/groups", "/console/buckets/nightly/timetable", "/console/buckets/letters/timetable",
	"/console/buckets/letters/purge", "/console/buckets/letters/dead/all/redrive", "/console/buckets/flows/dead/all/drop?cause=permanent", "/console/schedules", "/console/pools", "/console/limits", "/console/fleet", "/console/audit", "/console/audit?bucket=letters", "/console/login",
}

// Each page is made, names its files and pages from where it is, and has no script, style or picture of its own or of others.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte(`{"n":1970670598291982290}`)}, shaper.Job{Bucket: "flows", Flow: "acme", Payload: []byte("\xff\x00")})
	links := regexp.MustCompile(`(?:href|src|action|formaction)="([^"]*)"`)
	for _, path := range pagePaths {
		page := v.get(path)
		page.want(t, http.StatusOK, "<!doctype html>", "staging")
		if policy := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, policy)
		}
		for _, bad := range []string{" style=", "<style", " onclick=", "javascript:", "<script>", "http-equiv"} {
			if strings.Contains(page.text, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
		for _, link := range links.FindAllStringSubmatch(page.text, -1) {
			if strings.HasPrefix(link[1], "/") || strings.Contains(link[1], "//") {
				t.Errorf("%s: the link %q is lost behind a proxy with a prefix", path, link[1])
			}
		}
		if len(page.text) > 100<<10 {
			t.Errorf("%s has %d bytes", path, len(page.text))
		}
	}
	v.get("/console/jobs?id=a").want(t, http.StatusOK, "1970670598291982290", "queued")
	v.get("/console/buckets/none").want(t, http.StatusNotFound, "none")
	v.get("/console/nothing").want(t, http.StatusNotFound)
	v.get("/console/assets/").want(t, http.StatusNotFound)
	v.get("/console/pools").want(t, http.StatusOK, "vendor", "1000/s")
	v.get("/console/limits").want(t, http.StatusOK, "per-caller", "nobody")
	v.post("/console/pools/vendor/release").want(t, http.StatusOK, "nothing to change")
	v.get("/console/assets/console.js").want(t, http.StatusOK, "EventSource")
	if page := v.get("/console"); page.status != http.StatusOK || page.at != "/console/" {
		t.Errorf("/console leads to %s: %d", page.at, page.status)
	}
}

// A login leads back to the page that asked for it, also to the overview with a query.
func TestLoginLeadsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin))
	for _, path := range []string{"/console/", "/console/?sort=waiting", "/console/buckets/letters", "/console/jobs?id=a"} {
		v := s.visitor()
		at, err := url.Parse(v.get(path).at)
		if err != nil || at.Path != "/console/login" {
			t.Fatalf("%s without a login: %s, %v", path, at, err)
		}
		if page := v.post("/console/login", "key", "root", "next", at.Query().Get("next")); page.at != path {
			t.Errorf("the login that %s asks for leads to %s", path, page.at)
		}
	}
}

// A login is asked for once, is bound to its key, and ends. Redis never has the session itself.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("reader", []string{"*"}, apikey.RoleRead))
	v := s.visitor()
	for _, path := range pagePaths {
		if page := v.get(path); !strings.HasPrefix(page.at, "/console/login") || !strings.Contains(page.text, `name="key"`) {
			t.Errorf("%s without a login: %s", path, page.at)
		}
	}
	if page := v.do(http.MethodGet, "/console/", nil, "Authorization", "Bearer root"); !strings.HasPrefix(page.at, "/console/login") {
		t.Error("the pages take a bearer")
	}
	v.post("/console/buckets/letters/do/pause").want(t, http.StatusUnauthorized, "log in")
	v.get("/console/stream").want(t, http.StatusUnauthorized)
	v.login("wrong").want(t, http.StatusUnauthorized, "does not know the key")
	if page := v.login("root"); page.status != http.StatusOK || page.at != "/console/fleet" || !strings.Contains(page.text, "key root") {
		t.Errorf("after the login: %d %s", page.status, page.at)
	}
	at := must.Get(url.Parse(s.url + "/console/"))(t)
	cookies := v.http.Jar.Cookies(at)
	if len(cookies) != 1 || len(cookies[0].Value) < 40 {
		t.Fatalf("cookies %v", cookies)
	}
	keys := s.redis.Keys(t.Context(), "tundish:{fleet}:sessions:*").Val()
	if len(keys) != 1 || strings.Contains(keys[0], cookies[0].Value) || s.redis.TTL(t.Context(), keys[0]).Val() > 12*time.Hour || strings.Contains(fmt.Sprint(s.redis.HGetAll(t.Context(), keys[0]).Val()), cookies[0].Value) {
		t.Errorf("sessions %q", keys)
	}
	must.Equal(t, v.do(http.MethodGet, "/v1/buckets", nil, "Cookie", "tundish_session="+cookies[0].Value).status, http.StatusUnauthorized, "the API takes the cookie")
	s.handler.SetKeys([]apikey.Key{keyOf("reader", []string{"*"}, apikey.RoleRead)})
	if page := v.get("/console/"); !strings.HasPrefix(page.at, "/console/login") {
		t.Error("a login outlives its key")
	}
	rotated := keyOf("root", []string{"*"}, apikey.RoleAdmin)
	rotated.SHA256 = [][sha256.Size]byte{sha256.Sum256([]byte("another"))}
	s.handler.SetKeys([]apikey.Key{rotated})
	if page := v.get("/console/"); !strings.HasPrefix(page.at, "/console/login") {
		t.Error("a login outlives its secret")
	}
	s.handler.SetKeys([]apikey.Key{keyOf("root", []string{"*"}, apikey.RoleAdmin)})
	v.get("/console/").want(t, http.StatusOK, "key root")
	v.post("/console/logout")
	v.do(http.MethodGet, "/console/fleet", nil, "Cookie", "tundish_session="+cookies[0].Value).want(t, http.StatusOK, `name="key"`)
}

// The cookie is of the console alone, of no script, and goes with links from elsewhere but not with their forms.
func TestCookie(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin))
	v := s.visitor()
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for proto, secure := range map[string]bool{"": false, "https": true} {
		page := v.do(http.MethodPost, "/console/login", url.Values{"key": {"root"}, "next": {"//evil.example/"}}, "X-Forwarded-Proto", proto)
		cookie := page.header.Get("Set-Cookie")
		if page.status != http.StatusSeeOther || page.header.Get("Location") != "./" || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") ||
			strings.Contains(cookie, "Path") || strings.Contains(cookie, "Domain") || strings.Contains(cookie, "Secure") != secure {
			t.Errorf("%d to %q: %s", page.status, page.header.Get("Location"), cookie)
		}
	}
	page := v.do(http.MethodPost, "/console/login", url.Values{"key": {"root"}}, "Origin", "https://evil.example")
	page.want(t, http.StatusForbidden)
}

// A right key logs in however many keys of its address were wrong.
func TestARightKeyLogsInAfterWrongOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin))
	v := s.visitor()
	refused := 0
	for range 100 {
		if v.login("wrong").status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no wrong key had to wait")
	}
	v.login("root").want(t, http.StatusOK)
	v.get("/console/fleet").want(t, http.StatusOK)
}

// Ten wrong keys a minute from an address, and no more. Those that were looked at are counted, and logged.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin))
	v := s.visitor()
	refused := 0
	for range 25 { // over the end of a minute, too
		if page := v.login("wrong"); page.status == http.StatusTooManyRequests {
			refused++
			if page.header.Get("Retry-After") == "" {
				t.Error("no time is told")
			}
		}
	}
	if refused < 5 {
		t.Errorf("%d of 25 attempts are refused", refused)
	}
	v.login("root").want(t, http.StatusOK)
	must.Equal(t, int(testutil.ToFloat64(s.wrongKeys)), 25-refused, "wrong keys are counted")
	if text := s.log.String(); strings.Count(text, "level=WARN") < 1 || !strings.Contains(text, "API keys that this server does not know") || !strings.Contains(text, "last_address=127.0.0.1") {
		t.Errorf("the log says %q", text)
	}
}

// The API decides: a page hides what a key may not do, and a form that is sent all the same is refused.
func TestRights(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("reader", []string{"*"}, apikey.RoleRead), keyOf("oncall", []string{"*"}, apikey.RoleOperate, apikey.RoleRead),
		keyOf("letters", []string{"letters"}, apikey.RoleRead), keyOf("enqueuer", []string{"*"}, apikey.RoleEnqueue))
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("1")}, shaper.Job{Bucket: "flows", Flow: "acme", Payload: []byte("1")})
	for _, c := range []struct {
		key            string
		pause, set     int
		pauses, setter bool
	}{{"reader", 403, 403, false, false}, {"oncall", 200, 403, true, false}, {"root", 200, 200, true, true}} {
		v := s.visitor()
		v.login(c.key).want(t, http.StatusOK)
		page := v.get("/console/buckets/letters")
		page.want(t, http.StatusOK)
		if strings.Contains(page.text, "do/pause") != c.pauses || strings.Contains(page.text, "do/set") != c.setter {
			t.Errorf("the page of %s: %s", c.key, page.text)
		}
		v.post("/console/buckets/letters/do/pause", "reason", "of "+c.key).want(t, c.pause)
		v.post("/console/buckets/letters/do/set", "rate", "2/h").want(t, c.set)
		v.post("/console/buckets/letters/do/resume").want(t, c.pause)
	}
	v := s.visitor()
	v.login("letters")
	if page := v.get("/console/"); !strings.Contains(page.text, "buckets/letters") || strings.Contains(page.text, "buckets/flows") {
		t.Errorf("a key of one bucket sees %s", page.text)
	}
	v.get("/console/buckets/flows").want(t, http.StatusForbidden)
	v = s.visitor()
	v.login("enqueuer").want(t, http.StatusForbidden)

	v = s.visitor()
	v.login("root")
	v.get("/console/audit").want(t, http.StatusOK, "key oncall", "pauseBucket", "of root", "rate 1/h → 2/h", "127.0.0.1")
	v.get("/console/audit?author=oncall").want(t, http.StatusOK, "pauseBucket", `value="oncall"`)
	v.get("/console/audit?author=nobody").want(t, http.StatusOK, "No operation of such an author")
	v.get("/console/audit?logins=true").want(t, http.StatusOK, "key oncall", "<td>login</td>", "127.0.0.1")
}

// Whatever stands in a field, a page shows it as text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}` + "\u202e"
	s.enqueue(shaper.Job{Bucket: "flows", ID: "a", Flow: hostile, Payload: []byte(hostile)})
	v.post("/console/buckets/flows/do/pause", "reason", hostile).want(t, http.StatusOK, "It is paused.")
	for _, path := range []string{"/console/", "/console/buckets/flows", "/console/audit", "/console/jobs?id=a", "/console/login?next=" + url.QueryEscape(hostile), "/console/?q=" + url.QueryEscape(hostile),
		"/console/buckets/" + url.PathEscape(hostile), "/console/jobs?id=" + url.QueryEscape(hostile), "/console/audit?bucket=" + url.QueryEscape(hostile), "/console/buckets/flows/dead?q=" + url.QueryEscape(hostile), "/console/?did=" + url.QueryEscape(hostile)} {
		page := v.get(path)
		if strings.Contains(page.text, "<script>alert") || strings.Contains(page.text, "<img") {
			t.Errorf("%s: %s", path, page.text)
		}
	}
	if page := v.get("/console/buckets/flows"); !strings.Contains(page.text, "&lt;script&gt;alert(1)") {
		t.Error("the text is not shown at all")
	}
}

// A bucket is changed by forms alone, and says what was done.
func TestActions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("1")})
	page := v.post("/console/buckets/letters/do/pause", "reason", "the receiver is down")
	page.want(t, http.StatusOK, "It is paused.", "the receiver is down", "do/resume", "<strong>paused</strong>")
	must.Equal(t, page.at, "/console/buckets/letters?did=pause", "it leads to")
	v.post("/console/buckets/letters/do/resume").want(t, http.StatusOK, "It runs again.", "no-dispatcher")
	v.post("/console/buckets/letters/do/resume").want(t, http.StatusOK, "nothing to change")
	v.post("/console/buckets/letters/do/set", "rate", "3/h").want(t, http.StatusOK, "3/h", "do/reset")
	v.post("/console/buckets/letters/do/set", "rate", "fast").want(t, http.StatusBadRequest, "fast")
	v.post("/console/buckets/letters/do/reset").want(t, http.StatusOK, "1/h")
	v.post("/console/buckets/letters/do/nothing").want(t, http.StatusNotFound)
	v.post("/console/buckets/letters/dead/redrive").want(t, http.StatusBadRequest, "mark some")
	v.post("/console/buckets/letters/dead/redrive", "id", "a").want(t, http.StatusOK, "nothing to change")
	v.post("/console/schedules/none/fire").want(t, http.StatusNotFound)
	if page := v.do(http.MethodPost, "/console/buckets/letters/do/pause", url.Values{}, "Origin", "https://evil.example"); page.status != http.StatusForbidden {
		t.Errorf("a form of another origin: %d", page.status)
	}
}

// Without Redis a page says so, and comes back with it.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin))
	v := s.visitor()
	v.login("root").want(t, http.StatusOK)
	s.store.Kill()
	v.get("/console/").want(t, http.StatusServiceUnavailable, "Redis")
	must.OK(t, s.store.Restart())
	for {
		page := v.get("/console/")
		if page.status == http.StatusOK {
			page.want(t, http.StatusOK, `name="key"`) // its data is gone, and with it the login
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the pages do not come back")
		}
	}
}

// The stream is that of the API, for the session.
func TestStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("letters", []string{"letters"}, apikey.RoleRead))
	v := s.visitor()
	v.login("letters")
	v.get("/console/stream?bucket=flows").want(t, http.StatusForbidden)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/console/stream?bucket=letters", http.NoBody))(t)
	response, err := v.http.Do(request)
	must.OK(t, err)
	defer response.Body.Close()
	text := make([]byte, 0, 1000)
	for part := make([]byte, 100); !strings.Contains(string(text), "event: second"); {
		n, err := response.Body.Read(part)
		if text = append(text, part[:n]...); err != nil {
			t.Fatal(err, string(text))
		}
	}
	if response.Header.Get("Content-Type") != "text/event-stream" {
		t.Error(response.Header)
	}
	cancel()
	s.handler.Drain()
	fmt.Fprintln(t.Output(), string(text))
}
