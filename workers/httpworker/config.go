package httpworker

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// Config says which API the jobs of a bucket go to, and within which bounds.
type Config struct {
	BaseURL string            // that the paths of jobs go below
	Auth    Auth              // what requests to its origin carry
	Headers map[string]string // the same

	// Timeout is for all of an attempt: to get a token, resolve, connect, send, and read the answer. The lease must
	// be at least as long.
	Timeout time.Duration

	// Policy says what becomes of a job after each answer.
	Policy workers.Policy

	// AllowNetworks are the networks beyond the public internet that may be called; see [workers.Guard]. They hold for the OAuth
	// server too.
	AllowNetworks []netip.Prefix

	// Concurrency is how many deliveries are under way at a time at most: so many connections to one host are kept.
	Concurrency int

	TLS outgoing.TLS

	// EgressProxy is the proxy that requests to the API go through, as http://user:password@host:port; "" for none.
	EgressProxy string

	// Read by New.
	home  outgoing.Target // of BaseURL
	proxy *url.URL        // EgressProxy, nil for none
}

// DefaultStatuses are the answers after which a job is tried again, where nothing else is said. Others are the API's answer.
func DefaultStatuses() []string { return []string{"408", "425", "429", "5xx"} }

// DefaultConfig returns the defaults: 30 s, another try after [DefaultStatuses], the public internet only, no credentials.
func DefaultConfig() Config {
	return Config{Timeout: 30 * time.Second, Policy: workers.Policy{Statuses: DefaultStatuses(), Hold: true}, Concurrency: 256}
}

// Validate reports every fault of the settings, joined, or nil. Each begins with the key of the configuration. No fault repeats a
// secret. The files of TLS are for [outgoing.TLS.Check] to read.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("http.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	switch t, err := outgoing.ParseURL(c.BaseURL); {
	case c.BaseURL == "":
		fail("base_url", "is missing: want the address of the API, such as \"https://api.example.com/v1\"")
	case err != nil:
		fail("base_url", "%v", err)
	default:
		if addr, ok := t.Origin.Addr(); ok && workers.Blocks(addr, c.AllowNetworks) {
			fail("base_url", "the address %s is not on the public internet: http.allow_networks can let it through", addr)
		}
	}
	if c.Timeout < outgoing.MinTimeout || c.Timeout > outgoing.MaxTimeout {
		fail("timeout", "%s: want %s to %s", c.Timeout, outgoing.MinTimeout, outgoing.MaxTimeout)
	}
	errs = append(errs, c.Policy.Validate())
	for _, network := range c.AllowNetworks {
		if !network.IsValid() || network.Addr().Is4In6() {
			fail("allow_networks", "%s: want networks such as 10.0.0.0/8 and fd00::/8", network)
		}
	}
	if c.Concurrency < 1 || c.Concurrency > shaper.MaxConcurrency {
		fail("concurrency", "%d: want 1 to %d", c.Concurrency, shaper.MaxConcurrency)
	}
	c.Auth.validate(c.AllowNetworks, fail)
	for name := range c.Headers {
		if err := outgoing.CheckHeaders(map[string][]string{name: {c.Headers[name]}}, c.Auth.headers()...); err != nil {
			fail("headers", "%s: %s", name, strings.TrimPrefix(err.Error(), "headers."+name+": "))
		}
	}
	c.validateTLS(fail)
	if c.EgressProxy != "" {
		_, origin, err := outgoing.ParseProxy(c.EgressProxy)
		if err != nil {
			fail("egress_proxy", "%v", err)
		} else if addr, ok := origin.Addr(); ok && workers.Blocks(addr, c.AllowNetworks) {
			fail("egress_proxy", "the address %s is not on the public internet: http.allow_networks can let it through", addr)
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateTLS(fail func(key, format string, args ...any)) {
	switch {
	case c.TLS.Cert == "" && c.TLS.Key == "":
	case c.TLS.Cert == "":
		fail("tls.cert", "is missing, and tls.key is set: set both or none")
	case c.TLS.Key == "":
		fail("tls.key", "is missing, and tls.cert is set: set both or none")
	case !strings.HasPrefix(strings.ToLower(c.BaseURL), "https://"):
		fail("tls.cert", "%q: is shown only to the origin of http.base_url: set that to an https URL", c.TLS.Cert)
	}
}

// read prepares valid settings for deliveries.
func (c *Config) read() (err error) {
	if c.home, err = outgoing.ParseURL(c.BaseURL); err != nil || c.EgressProxy == "" {
		return err
	}
	c.proxy, _, err = outgoing.ParseProxy(c.EgressProxy)
	return err
}
