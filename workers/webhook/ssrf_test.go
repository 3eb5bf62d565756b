package webhook

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// None of these may be connected. The guard is asked with the address that the
// dialer is about to connect, so no packet leaves this machine.
func TestAddressesThatAreNotPublic(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(c *Config) { c.AllowNetworks = nil })
	for host, what := range map[string]string{
		"127.0.0.1":                   "loopback",
		"127.255.255.254":             "loopback, the far end",
		"0.0.0.0":                     "this host",
		"0.1.2.3":                     "this network",
		"10.0.0.1":                    "private",
		"10.255.255.255":              "private, the far end",
		"172.16.0.1":                  "private",
		"172.31.255.255":              "private, the far end",
		"192.168.0.1":                 "private",
		"100.64.0.1":                  "shared (CGNAT)",
		"100.100.100.200":             "metadata of Alibaba",
		"169.254.169.254":             "metadata of AWS, GCP, Azure",
		"169.254.170.2":               "metadata of ECS tasks",
		"169.254.0.1":                 "link-local",
		"168.63.129.16":               "Azure's wire server",
		"192.0.0.1":                   "IETF protocol assignments",
		"192.0.0.192":                 "metadata of Oracle",
		"192.0.2.1":                   "documentation",
		"198.51.100.1":                "documentation",
		"203.0.113.1":                 "documentation",
		"192.88.99.1":                 "6to4 relay",
		"198.18.0.1":                  "benchmarks",
		"198.19.255.255":              "benchmarks, the far end",
		"224.0.0.1":                   "multicast",
		"239.255.255.255":             "multicast, the far end",
		"240.0.0.1":                   "reserved",
		"255.255.255.255":             "broadcast",
		"[::]":                        "this host",
		"[::1]":                       "loopback",
		"[::127.0.0.1]":               "IPv4-compatible",
		"[::ffff:127.0.0.1]":          "IPv4-mapped",
		"[::ffff:a9fe:a9fe]":          "IPv4-mapped metadata",
		"[64:ff9b::7f00:1]":           "NAT64 of loopback",
		"[64:ff9b::a9fe:a9fe]":        "NAT64 of metadata",
		"[64:ff9b:1::1]":              "local NAT64",
		"[100::1]":                    "discard",
		"[2001::1]":                   "Teredo",
		"[2001:db8::1]":               "documentation",
		"[2002:7f00:1::]":             "6to4 of loopback",
		"[2002:a9fe:a9fe::]":          "6to4 of metadata",
		"[3fff::1]":                   "documentation",
		"[5f00::1]":                   "segment routing",
		"[fc00::1]":                   "unique local",
		"[fd00:ec2::254]":             "metadata of AWS",
		"[fd20:ce::254]":              "metadata of GCP",
		"[fe80::1]":                   "link-local",
		"[fe80::1%25lo]":              "link-local with a zone",
		"[fec0::1]":                   "site-local",
		"[ff02::1]":                   "multicast",
		"localhost":                   "a name of loopback",
		"[0:0:0:0:0:ffff:7f00:0001]":  "IPv4-mapped, spelled out",
		"[::FFFF:192.168.000.001%25]": "no address at all",
	} {
		for _, port := range []string{"", ":8080"} {
			outcome := w.Deliver(t.Context(), newAttempt("http://"+host+port+"/latest/meta-data"))
			blocked := outcome.Reason == workers.ReasonBlockedAddress || outcome.Reason == workers.ReasonInvalid
			if outcome.Result != shaper.ResultDead && host != "localhost" || !blocked { // DNS may change, and no connection is made
				t.Errorf("%s%s (%s): %+v, want dead", host, port, what, outcome)
			}
		}
	}
}

func TestBlockedReceiverIsNotReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was reached") }))
	t.Cleanup(server.Close)
	departed := false
	attempt := withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { departed = true }), server.URL)
	outcome := newWorker(t, func(c *Config) { c.AllowNetworks = nil }).Deliver(t.Context(), attempt)
	want(t, outcome, shaper.ResultDead, workers.ReasonBlockedAddress)
	if departed || strings.Contains(outcome.Detail, "127.0.0.1") || !strings.Contains(outcome.Private, "127.0.0.1") {
		t.Errorf("departed: %t, detail %q, and in the log %q", departed, outcome.Detail, outcome.Private)
	}

	// Allowed to the address, and to no other.
	w := newWorker(t, func(c *Config) { c.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")} })
	want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDead, workers.ReasonBlockedAddress)
}

// The proxy would be what the guard sees.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked the proxy") }))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	w := newWorker(t, func(c *Config) { c.AllowNetworks = nil })
	want(t, w.Deliver(t.Context(), newAttempt("http://169.254.169.254/")), shaper.ResultDead, workers.ReasonBlockedAddress)
}
