package outgoing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// Bounds of the settings.
const (
	MinTimeout = 10 * time.Millisecond
	MaxTimeout = 15 * time.Minute

	MinConnectionMaxAge = time.Second
	MaxConnectionMaxAge = 24 * time.Hour
)

// Config bounds what a [Sender] sends. Workers have these settings under the same names.
type Config struct {
	Timeout       time.Duration  // of one attempt: to resolve, connect, send, and read the response
	Policy        workers.Policy // decides what becomes of a job after each response
	AllowNetworks []netip.Prefix // beyond the public internet; see [workers.Guard]
	Concurrency   int            // connections to one host to keep, at most, and twice as many in all
	TLS           TLS
	EgressProxy   string // that all requests go through, as http://user:password@host:port; "" for none
	Home          string // the URL whose origin alone is shown the client certificate of TLS; "" for none

	// ConnectionMaxAge is the age at which a connection gets no new request. It closes when its requests have ended, and the next connection resolves the
	// host again. 0: no maximum.
	ConnectionMaxAge time.Duration

	Resolver *net.Resolver // of the names of hosts; nil for the system's
}

// DefaultConnectionMaxAge is the default of ConnectionMaxAge in the workers.
const DefaultConnectionMaxAge = 5 * time.Minute

// Validate returns every fault except the faults of Home, joined, or nil. Each begins with its key in the configuration; table is the worker's table
// there, and home the key of Home. No fault repeats a secret.
func (c Config) Validate(table, home string) error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", table, key, fmt.Sprintf(format, args...)))
	}
	if c.Timeout < MinTimeout || c.Timeout > MaxTimeout {
		fail("timeout", "%s: want %s to %s", c.Timeout, MinTimeout, MaxTimeout)
	}
	if c.ConnectionMaxAge != 0 && (c.ConnectionMaxAge < MinConnectionMaxAge || c.ConnectionMaxAge > MaxConnectionMaxAge) {
		fail("connection_max_age", "%s: want %s to %s, or 0s for no maximum", c.ConnectionMaxAge, MinConnectionMaxAge, MaxConnectionMaxAge)
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
	switch {
	case c.TLS.Cert == "" && c.TLS.Key == "":
	case c.TLS.Cert == "":
		fail("tls.cert", "is missing, and tls.key is set: set both or none")
	case c.TLS.Key == "":
		fail("tls.key", "is missing, and tls.cert is set: set both or none")
	case !strings.HasPrefix(strings.ToLower(c.Home), "https://"):
		fail("tls.cert", "%q: is shown only to the origin of %s.%s: set that to an https URL", c.TLS.Cert, table, home)
	}
	if c.EgressProxy != "" {
		_, origin, err := parseProxy(c.EgressProxy)
		if err == nil {
			err = c.CheckAddress(table, origin)
		}
		if err != nil {
			fail("egress_proxy", "%v", err)
		}
	}
	return errors.Join(errs...)
}

// CheckAddress reports an origin that is an address to which no connection may go.
func (c Config) CheckAddress(table string, o shaper.Origin) error {
	if addr, ok := o.Addr(); ok && workers.Blocks(addr, c.AllowNetworks) {
		return fmt.Errorf("the address %s is not on the public internet: %s.allow_networks can let it through", addr, table)
	}
	return nil
}
