package httpapi_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// A request that was not sent because hosts cannot connect is a 503 with a time, not a 504 of the API. Its text names no address.
func TestProxyNamesFaultsOfHosts(t *testing.T) {
	t.Parallel()
	p := newProxyRigOf(t, func(b *shaper.Bucket, c *httpworker.Config) {
		if b.Name == "gone" {
			c.BaseURL, c.EgressProxy = "https://api.example.com/", "http://127.0.0.1:1"
		}
	})
	a := p.do("POST", "/v1/proxy/gone/x", "{}", "Prefer", "wait=2").want(503, "local-fault")
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 30 || strings.Contains(a.text, "127.0.0.1") {
		t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), a.text)
	}
	p.untilJobs("gone", 0)
	// No dispatcher has tried this one, as none can connect.
	p.hostFault.Store(true)
	p.do("POST", "/v1/proxy/stuck/x", "{}").want(503, "local-fault")
	p.hostFault.Store(false)
	p.do("POST", "/v1/proxy/stuck/x", "{}").want(504, "not-in-time")
}
