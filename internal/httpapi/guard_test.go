package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{}})
	for name, test := range map[string]struct {
		remote, host  string
		header, value string
		refused       string // because of; "" if it is served
	}{
		"plain":            {},
		"localhost":        {host: "LOCALHOST:8080"},
		"IPv4":             {host: "127.9.9.9"},
		"IPv6":             {host: "[::1]:8080", remote: "[::1]:9"},
		"IPv6, no port":    {host: "[::1]"},
		"same origin":      {header: "Origin", value: "http://localhost"},
		"another machine":  {remote: "192.0.2.1:9", refused: "another machine"},
		"nobody":           {remote: "@", refused: "another machine"},
		"another host":     {host: "evil.example", refused: "another host name"},
		"a look-alike":     {host: "localhost.evil.example:80", refused: "another host name"},
		"an outer address": {host: "192.0.2.1:8080", refused: "another host name"},
		"no host":          {host: " ", refused: "another host name"},
		"Forwarded":        {header: "Forwarded", value: "for=192.0.2.1", refused: "Forwarded"},
		"X-Forwarded-For":  {header: "X-Forwarded-For", value: "127.0.0.1", refused: "X-Forwarded-For"},
		"X-Forwarded-Any":  {header: "x-forwarded-any", value: "", refused: "X-Forwarded-Any"},
		"X-Real-IP":        {header: "X-Real-IP", value: "127.0.0.1", refused: "X-Real-Ip"},
		"Via":              {header: "Via", value: "1.1 proxy", refused: "Via"},
		"another origin":   {header: "Origin", value: "https://evil.example", refused: "another origin"},
		"cross-site":       {header: "Sec-Fetch-Site", value: "cross-site", refused: "another origin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{jobs, "/metrics", "/nothing"} {
				r := httptest.NewRequest("POST", path, nil)
				r.RemoteAddr, r.Host = "127.0.0.1:9", "localhost"
				if test.remote != "" {
					r.RemoteAddr = test.remote
				}
				if test.host != "" {
					r.Host = test.host
				}
				if test.header != "" {
					r.Header.Set(test.header, test.value)
				}
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				must.Equal(t, w.Code == 403, (test.refused != ""), "%s: status %d: %s", path, w.Code, w.Body)
				if !strings.Contains(w.Body.String(), test.refused) {
					t.Errorf("%s: want %q in %s", path, test.refused, w.Body)
				}
			}
		})
	}
}

// A check spends, whatever its method: a web page of another origin may not send one.
// The path is found by the router, so that no spelling of it gets past.
func TestCheckOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	asked := &fakeLimits{}
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{}, Limits: asked})
	for name, test := range map[string]struct {
		header, value string
		status        int
	}{
		"a program":                {status: 200},
		"a page of this server":    {"Sec-Fetch-Site", "same-origin", 200},
		"an address that is typed": {"Sec-Fetch-Site", "none", 200},
		"another site":             {"Sec-Fetch-Site", "cross-site", 403},
		"another port":             {"Sec-Fetch-Site", "same-site", 403},
		"another origin":           {"Origin", "https://evil.example", 403},
		"a sandbox":                {"Origin", "null", 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST"} {
				for _, path := range []string{"/v1/limits/a/check", "/v1/limits/a/check/x", "/v1/%6Cimits/a/check", "/v1/limits/a/%63heck"} {
					r := httptest.NewRequest(method, path+"?cost=1000000", nil)
					r.RemoteAddr, r.Host = "127.0.0.1:9", "localhost"
					if test.header != "" {
						r.Header.Set(test.header, test.value)
					}
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					if w.Code != test.status {
						t.Errorf("%s %s: status %d, want %d: %s", method, path, w.Code, test.status, w.Body)
					}
				}
			}
		})
	}
}
