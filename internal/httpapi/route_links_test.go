package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/workers/llm"
)

// Addresses below the base URL lead back to the route, in every header that has some, as through the plain proxy. A client that follows one with its
// key gets what the API has there, and the API sees no key of this server.
func TestRouteLeadsAddressesBack(t *testing.T) {
	t.Parallel()
	var api string
	d := newRouteRigOf(t, func(bucket string, c *llm.Config) {
		if bucket == "claude" {
			api = c.HTTP.BaseURL
		}
		c.HTTP.BaseURL += "/openai?api-version=1"
	}, keyOf("ours", []string{"*"}, apikey.RoleEnqueue))
	own := d.http.URL + "/v1/proxy/claude"
	for name, tt := range map[string]struct{ header, said, want string }{
		"an operation":      {"Operation-Location", "%/openai/operations/images/7?api-version=1", own + "/operations/images/7"},
		"of Azure":          {"Azure-AsyncOperation", "%/openai/operations/7?api-version=1&v=2", own + "/operations/7?v=2"},
		"an address":        {"Location", "%/openai/files/7", own + "/files/7"},
		"a path":            {"Location", "/openai/files/7", own + "/files/7"},
		"of its page":       {"Content-Location", "%/openai/files", own + "/files"},
		"a link":            {"Link", `<%/openai/files?page=2>; rel="next"`, "<" + own + `/files?page=2>; rel="next"`},
		"not below":         {"Location", "%/other/7", ""},
		"another host":      {"Operation-Location", "https://api.example.com/openai/7", "https://api.example.com/openai/7"},
		"to another bucket": {"Location", "%/openai/%2e%2e/slow/x", ""},
	} {
		for _, status := range []int{http.StatusAccepted, http.StatusConflict} {
			d.answerWith(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(tt.header, strings.ReplaceAll(tt.said, "%/", "http://"+r.Host+"/"))
				w.WriteHeader(status)
			})
			a := d.do("POST", "/v1/proxy/claude/x", chatOf("m"), "Authorization", "Bearer ours")
			if want := strings.ReplaceAll(tt.want, "%/", api+"/"); a.status != status || a.header.Get(tt.header) != want {
				t.Errorf("%s: %d, %s is %q, want %q", name, a.status, tt.header, a.header.Get(tt.header), want)
			}
		}
	}
	var seen atomic.Pointer[http.Request]
	d.answerWith(func(w http.ResponseWriter, r *http.Request) { seen.Store(r) })
	d.do("GET", "/v1/proxy/claude/operations/images/7", "", "Authorization", "Bearer ours", "X-Api-Key", "ours", "Api-Key", "ours", "X-Any", "ours", "Tundish-Key", "ours")
	r := seen.Load()
	if r == nil || r.RequestURI != "/openai/operations/images/7?api-version=1" || r.Header.Get("Authorization") != "Bearer "+vendorKey {
		t.Fatalf("%+v", r)
	}
	for name, values := range r.Header {
		if strings.Contains(strings.Join(values, " "), "ours") {
			t.Errorf("the API has our key in %s", name)
		}
	}
}

// A route with two APIs leads an address of the second one to the route of its bucket: a request without a model would go to the first one.
func TestRouteOfTwoAPIsLeadsAddressesBack(t *testing.T) {
	t.Parallel()
	d := newRouteRigOf(t, func(bucket string, c *llm.Config) {
		if bucket == "quick" || bucket == "rest" {
			c.HTTP.BaseURL += "/" + bucket
		}
	})
	for _, b := range d.byRoute["openai"] {
		d.byRoute[b.API.Bucket] = []httpapi.RouteBucket{b}
	}
	d.answerWith(func(w http.ResponseWriter, r *http.Request) {
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		w.Header().Set("Operation-Location", "http://"+r.Host+"/"+bucket+"/operations/7")
		_, _ = io.WriteString(w, r.URL.Path)
	})
	for model, want := range map[string]string{"gpt-5": "openai", "other": "rest"} {
		a := d.do("POST", "/v1/proxy/openai/x", chatOf(model))
		at := a.header.Get("Operation-Location")
		must.Be(t, at, d.http.URL+"/v1/proxy/"+want+"/operations/7", "%s", model)
		bucket := strings.TrimSuffix(strings.TrimPrefix(a.text, "/"), "/x")
		must.Equal(t, d.do("GET", strings.TrimPrefix(at, d.http.URL), "").text, "/"+bucket+"/operations/7", "%s leads to", at)
	}
}

// The account that pays is the bucket's, whoever calls: a client's headers for that stay here. No cookie comes back, and no path has a backslash.
func TestRouteKeepsTheAccountOfTheBucket(t *testing.T) {
	t.Parallel()
	accounts := []string{"OpenAI-Organization", "OpenAI-Project", "X-Goog-User-Project"}
	d := newRouteRigOf(t, func(bucket string, c *llm.Config) {
		if bucket == "quick" {
			c.HTTP.Headers = map[string]string{"OpenAI-Project": "ours"}
		}
	})
	d.answerWith(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range accounts {
			w.Header().Set("X-Seen-"+name, r.Header.Get(name))
		}
		w.Header().Set("Set-Cookie", "session=theirs")
	})
	for model, project := range map[string]string{"gpt-5": "ours", "other": ""} {
		a := d.do("POST", "/v1/proxy/openai/v1/x", chatOf(model), accounts[0], "org-theirs", accounts[1], "proj_theirs", accounts[2], "theirs")
		if a.status != http.StatusOK || a.header.Get("X-Seen-"+accounts[0]) != "" || a.header.Get("X-Seen-"+accounts[1]) != project || a.header.Get("X-Seen-"+accounts[2]) != "" {
			t.Errorf("%s: %d, the API has seen %v", model, a.status, a.header)
		}
		if cookies := a.header.Values("Set-Cookie"); len(cookies) > 0 {
			t.Errorf("cookies %q", cookies)
		}
	}
	calls := d.calls.Load()
	for _, path := range []string{"/v1/a%5cb", "/v1/a%5C..%5Cb", `/v1/..%5cx`} {
		if a := d.do("GET", "/v1/proxy/openai"+path, ""); a.status != http.StatusBadRequest || !strings.Contains(a.text, `"invalid"`) {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
	must.Equal(t, d.calls.Load(), calls, "a path with a backslash reached the API")
}
