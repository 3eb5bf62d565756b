package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// Bounds of the settings.
const (
	MinTimeout = 10 * time.Millisecond
	MaxTimeout = 15 * time.Minute
)

// Config says where the jobs of a bucket go, and within which bounds.
type Config struct {
	// URL is used where a job names none, and its flow has none. "" means that every
	// job must name one.
	URL string

	// JobURL says whether a job may name its own URL. That of a flow is an operator's.
	JobURL bool

	// Timeout is for all of an attempt: to resolve, connect, send, and read
	// the answer. The lease must be at least as long.
	Timeout time.Duration

	// Policy says what becomes of a job after each answer.
	Policy workers.Policy

	// AllowNetworks are the networks beyond the public internet that may be
	// called; see [workers.Guard].
	AllowNetworks []netip.Prefix

	// Concurrency is how many deliveries are under way at a time at most. So
	// many connections to one host are kept, and twice as many in all. It
	// bounds nothing else: that is the dispatcher's to do.
	Concurrency int

	home target // of URL, once New has read it
}

// DefaultConfig returns the defaults: every job names its URL, 15 s, another try after every answer but 2xx
// and 410, the public internet only.
func DefaultConfig() Config {
	return Config{JobURL: true, Timeout: 15 * time.Second, Policy: workers.DefaultPolicy(), Concurrency: 256}
}

// Validate reports every fault of the settings, joined, or nil. Each begins
// with the key of the configuration.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("webhook.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.URL != "" {
		if _, err := parseURL(c.URL); err != nil {
			fail("url", "%v", err)
		}
	} else if !c.JobURL {
		fail("url", "is missing, and job_url = false lets no job name one")
	}
	if c.Timeout < MinTimeout || c.Timeout > MaxTimeout {
		fail("timeout", "%s: want %s to %s", c.Timeout, MinTimeout, MaxTimeout)
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
	return errors.Join(errs...)
}
