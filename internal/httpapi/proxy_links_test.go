package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// Addresses below the base URL lead back to the proxy, in every header that has some. Others of the API's host do not pass, and the answer names the
// header. Those of other hosts stay as they are.
func TestProxyLeadsAddressesBack(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	api := p.apiURL // its base is /base?fixed=1
	own := p.http.URL + "/v1/proxy/api"
	for name, tt := range map[string]struct{ header, said, want string }{
		"an address":               {"Location", api + "/base/customers/7", own + "/customers/7"},
		"its base":                 {"Location", api + "/base", own},
		"of its page":              {"Content-Location", api + "/base/customers/7?fixed=1&v=2#top", own + "/customers/7?v=2#top"},
		"another case":             {"Location", strings.Replace(api, "http://", "HTTP://", 1) + "/base/a", own + "/a"},
		"without a scheme":         {"Location", strings.TrimPrefix(api, "http:") + "/base/a", own + "/a"},
		"a path":                   {"Location", "/base/a%2Fb", own + "/a%2Fb"},
		"relative":                 {"Location", "7?a=b", "7?a=b"},
		"a query":                  {"Location", "?page=2", "?page=2"},
		"another path":             {"Location", "/elsewhere", "/elsewhere"},
		"nearly the base":          {"Location", api + "/baseline", ""},
		"another host":             {"Location", "https://api.example.com/base/7", "https://api.example.com/base/7"},
		"another port":             {"Location", "http://127.0.0.1:1/base/7", ""},
		"another scheme":           {"Location", "ftp://127.0.0.1/base/7", "ftp://127.0.0.1/base/7"},
		"it climbs out":            {"Location", api + "/base/../x", ""},
		"to another bucket":        {"Location", api + "/base/%2e%2e/slow/x", ""},
		"to this server":           {"Location", "/v1/buckets/slow/jobs", ""},
		"it stays":                 {"Location", api + "/base/a/../b", own + "/b"},
		"no address":               {"Location", "http://%zz", "http://%zz"},
		"a link":                   {"Link", "<" + api + `/base/p?page=2>; rel="next"`, "<" + own + `/p?page=2>; rel="next"`},
		"several":                  {"Link", "<" + api + `/base/p?page=2>; rel="next"; title="a, <b>; \" c", </base/p?page=5>;rel=last , <https://other.example/>; rel=help`, "<" + own + `/p?page=2>; rel="next"; title="a, <b>; \" c", <` + own + `/p?page=5>;rel=last , <https://other.example/>; rel=help`},
		"a link past the proxy":    {"Link", "<" + api + `/p?page=2>; rel="next", </base/p?page=5>;rel=last, <` + api + `/x>; rel=help`, "<" + own + "/p?page=5>;rel=last"},
		"an operation elsewhere":   {"Operation-Location", api + "/operations/7", ""},
		"no link":                  {"Link", "next <" + api + "/base/p>", "next <" + api + "/base/p>"},
		"a header of another name": {"Operation-Location", api + "/base/operations/7", own + "/operations/7"},
		"a text":                   {"X-Note", "see " + api + "/base/a", "see " + api + "/base/a"},
		"a path that is none":      {"X-Path", "/base/a", "/base/a"},
	} {
		p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(tt.header, tt.said)
			w.WriteHeader(http.StatusCreated)
		})
		a := p.do("POST", "/v1/proxy/api/x", "").want(201, "")
		must.Equal(t, a.header.Get(tt.header), tt.want, "%s: %s is", name, tt.header)
		isPast := tt.want == "" || name == "a link past the proxy"
		if got := a.header.Get("Tundish-Dropped"); isPast != (got == tt.header) || !isPast && got != "" {
			t.Errorf("%s: the answer says that %q was dropped", name, got)
		}
	}
	// What a client that follows such an address asks is what the API has said.
	p.called()
	p.do("GET", "/v1/proxy/api/p?page=2", "").want(201, "")
	if calls := p.called(); len(calls) != 1 || calls[0].RequestURI != "/base/p?fixed=1&page=2" {
		t.Errorf("%v", calls)
	}
}

// The address is the one that the client has used: what a proxy in front says counts if it is trusted, and TLS in any case.
func TestProxyAddressesAreThoseOfTheClient(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("ours", []string{"*"}, "enqueue"))
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/base/7") })
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"plain":               {nil, p.http.URL},
		"by a proxy with TLS": {[]string{"X-Forwarded-Proto", "https"}, strings.Replace(p.http.URL, "http:", "https:", 1)},
		"no host":             {[]string{"X-Forwarded-Proto", "gopher", "X-Forwarded-Host", "evil.example", "X-Forwarded-Prefix", "/evil"}, p.http.URL},
	} {
		a := p.do("GET", "/v1/proxy/api/x", "", append(tt.headers, "Tundish-Key", "ours")...).want(200, "")
		must.Equal(t, a.header.Get("Location"), tt.want+"/v1/proxy/api/7", "%s", name)
	}
	trusting := p.trusting()
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"host and prefix": {[]string{"X-Forwarded-Proto", "https, http", "X-Forwarded-Host", "gw.example:8443, inner", "X-Forwarded-Prefix", "/tundish/"}, "https://gw.example:8443/tundish"},
		"bad ones":        {[]string{"X-Forwarded-Host", "gw.example/x?", "X-Forwarded-Prefix", "/a/../b"}, trusting.http.URL},
	} {
		a := trusting.do("GET", "/v1/proxy/api/x", "", append(tt.headers, "Tundish-Key", "ours")...).want(200, "")
		must.Equal(t, a.header.Get("Location"), tt.want+"/v1/proxy/api/7", "%s", name)
	}
}

// Answers say in headers where a request was and how long it waited.
func TestProxyNamesTheWait(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	a := p.do("GET", "/v1/proxy/api/x", "").want(200, "")
	if a.header.Get("Tundish-Bucket") != "api" || !strings.Contains(a.header.Get("Tundish-Wait"), "0.") || a.header.Values("Tundish-Flow") != nil {
		t.Errorf("%v", a.header)
	}
	if a := p.do("GET", "/v1/proxy/gone/x", "").want(502, "no-answer"); a.header.Get("Tundish-Bucket") != "gone" || a.header.Get("Tundish-Wait") == "" {
		t.Errorf("%v", a.header)
	}
}

// Answers of a bucket with flows name the flow, percent-encoded.
func TestProxyNamesTheFlow(t *testing.T) {
	t.Parallel()
	p := newProxyRigOf(t, func(b *shaper.Bucket, _ *httpworker.Config) {
		b.Flow, b.Adapt.Scope = &shaper.FlowSettings{GroupSettings: shaper.GroupSettings{Key: "header:X-Flow", Burst: 1}, MaxFlows: 100}, shaper.ScopeFlow
	})
	if a := p.do("GET", "/v1/proxy/api/x", "", "X-Flow", "Müller & Söhne/7").want(200, ""); a.header.Get("Tundish-Flow") != "M%C3%BCller%20&%20S%C3%B6hne%2F7" {
		t.Errorf("%q", a.header.Values("Tundish-Flow"))
	}
}

// A client that follows an address gives the vendor no key: of Go, whatever header its key is in. Where the address is one of another host, as of a
// download that the vendor has signed, the client follows it, without the Authorization.
func TestProxyKeepsKeysFromVendors(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t, keyOf("ours", []string{"*"}, "enqueue"))
	leaks := make(chan string, 100)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaks <- strings.Join([]string{r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")}, " ")
		_, _ = io.WriteString(w, "file")
	}))
	t.Cleanup(elsewhere.Close)
	other := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)
	for name, c := range map[string]struct {
		to, header, value string
		status            int
		seen              string
	}{
		"the vendor":              {elsewhere.URL + "/past", "Authorization", "Bearer ours", 302, ""},
		"the vendor, another key": {elsewhere.URL + "/past", "X-Api-Key", "ours", 302, ""},
		"a download":              {other + "/file?signature=1", "Authorization", "Bearer ours", 200, "/file  "},
	} {
		p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", c.to)
			w.WriteHeader(http.StatusFound)
		})
		r := must.Get(http.NewRequestWithContext(t.Context(), "GET", p.http.URL+"/v1/proxy/api/x", nil))(t)
		r.Header.Set(c.header, c.value)
		a, err := http.DefaultClient.Do(r)
		if err != nil && c.status == http.StatusOK {
			t.Fatalf("%s: %v", name, err)
		}
		if err == nil {
			a.Body.Close()
		}
		seen := ""
		select {
		case seen = <-leaks:
		default:
		}
		must.Equal(t, seen, c.seen, "%s: the other server sees", name)
	}
}
