package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// visitor asks the proxy for the i-th redirect with a header, and follows it.
type visitor func(t *testing.T, i int, header, value string)

// redirectRig is a proxy whose API redirects each request to the address that its query names by its number, and a host that is neither.
type redirectRig struct {
	*proxyRig
	to []string

	mu   sync.Mutex
	seen []http.Header // by the other host
}

func newRedirectRig(t *testing.T) *redirectRig {
	t.Helper()
	r := &redirectRig{proxyRig: newProxyRig(t, keyOf("ours", []string{"*"}, "enqueue"))}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, request.Header)
	}))
	t.Cleanup(elsewhere.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(elsewhere.URL, "http://"), ":")
	host := "localhost:" + port
	r.to = []string{"http://" + host + "/file", "//" + host + "/file", "///" + host + "/file", `http:\\` + host + `\file`, `/\` + host + "/file", "HTTP://" + host}
	r.answerWith(func(w http.ResponseWriter, request *http.Request) {
		i, _ := strconv.Atoi(request.URL.Query().Get("to"))
		w.Header().Set("Location", r.to[i])
		w.WriteHeader([]int{301, 302, 303, 307, 308}[i%5])
	})
	return r
}

func (r *redirectRig) address(i int) string {
	return fmt.Sprintf("%s/v1/proxy/api/x?to=%d", r.http.URL, i)
}

// reached returns the requests to the other host since the last call.
func (r *redirectRig) reached() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// visitors are unchanged clients.
func (r *redirectRig) visitors() map[string]visitor {
	program := func(t *testing.T, name string, args ...string) {
		t.Helper()
		if _, err := exec.LookPath(name); err != nil {
			must.Be(t, os.Getenv("CI"), "", "%s is not installed", name)
			t.Skipf("%s is not installed", name)
		}
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Logf("%s: %v: %s", name, err, out) // it may find an address strange
		}
	}
	return map[string]visitor{
		"Go": func(t *testing.T, i int, header, value string) {
			t.Helper()
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, r.address(i), nil))(t)
			request.Header.Set(header, value)
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		},
		"curl": func(t *testing.T, i int, header, value string) {
			t.Helper()
			program(t, "curl", "-sSL", "-o", os.DevNull, "-H", header+": "+value, r.address(i))
		},
		"fetch of Node": func(t *testing.T, i int, header, value string) {
			t.Helper()
			headers, _ := json.Marshal(map[string]string{header: value})
			program(t, "node", "-e", "fetch(process.argv[1], { headers: JSON.parse(process.argv[2]) }).then((r) => r.text())", r.address(i), string(headers))
		},
	}
}

// A client that follows a redirect of the API to another host sends it no key, however the address is written: where the key would go along, the
// address does not pass. With a key in Authorization the client follows, and leaves it out.
func TestRedirectsCarryNoKey(t *testing.T) {
	t.Parallel()
	r := newRedirectRig(t)
	for name, visit := range r.visitors() {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // one at a time: they share the other host
			for i, to := range r.to {
				headers := map[string]string{"X-Api-Key": "ours", "X-Any": "Token ours"}
				if name == "Go" { // the others are programs, and take longer
					headers["Api-Key"], headers["Tundish-Key"], headers["X-Shop-Token"] = "ours", "ours", "not ours"
				}
				for header, value := range headers {
					visit(t, i, header, value)
					if seen := r.reached(); len(seen) > 0 {
						t.Errorf("%s in %s, to %s: the other host was asked, with %v", value, header, to, seen[0][header])
					}
				}
				visit(t, i, "Authorization", "Bearer ours")
				seen := r.reached()
				if isPlain := strings.HasPrefix(to, "http://"); isPlain && !strings.Contains(to, `\`) && len(seen) != 1 {
					t.Errorf("with an Authorization, to %s: %d requests to the other host, want 1", to, len(seen))
				}
				for _, header := range seen {
					must.Equal(t, header.Get("Authorization"), "", "to %s: the other host sees the Authorization", to)
				}
			}
		})
	}
}

// A redirect to another port of the proxy's own host does not pass: clients of Go send it their Authorization.
func TestRedirectsToAnotherPort(t *testing.T) {
	t.Parallel()
	r := newRedirectRig(t)
	at := must.Get(url.Parse(r.http.URL))(t)
	for to, want := range map[string]string{
		"http://gw.example:9000/x":      "",
		"https://gw.example/x":          "",
		"http://sub.gw.example/x":       "",
		"http://GW.example./x":          "",
		"//gw.example/x":                "",
		"http://other.example/x":        "http://other.example/x",
		"http://notgw.example/x":        "http://notgw.example/x",
		r.apiURL + "/base/x":            "http://gw.example/v1/proxy/api/x",
		"x?page=2":                      "x?page=2",
		"/elsewhere":                    "/elsewhere",
		"http://other.example/x?u=gw.e": "http://other.example/x?u=gw.e",
	} {
		r.to = []string{to}
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, r.address(0), nil))(t)
		request.Host = "gw.example"
		request.Header.Set("Authorization", "Bearer ours")
		response, err := http.DefaultTransport.RoundTrip(request)
		must.OK(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		isDropped := response.Header.Get("Tundish-Dropped") == "Location"
		if got := response.Header.Get("Location"); got != want || isDropped != (want == "") {
			t.Errorf("%s at %s: %q, dropped %v, want %q", to, at.Host, got, isDropped, want)
		}
	}
}
