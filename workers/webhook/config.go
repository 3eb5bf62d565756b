package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// table is the worker's table in the configuration.
const table = "webhook"

// Config says where the jobs of a bucket go, and within which bounds.
type Config struct {
	// URL is the target if neither the job nor its flow names one. "" means that every job must name one, unless FlowURLs is set.
	URL string

	// FlowURLs says that enqueue accepts a job without a URL only if its flow has one: see NeedsURL of [shaper.FlowSettings]. Then no URL is needed here.
	FlowURLs bool

	// JobURL says whether a job may name its own URL. An operator sets the URL of a flow.
	JobURL bool

	// Timeout bounds an attempt: to resolve, connect, send, and read the response. The lease must be at least as long.
	Timeout time.Duration

	// Policy decides what becomes of a job after each response.
	Policy workers.Policy

	// AllowNetworks are the networks beyond the public internet that may be
	// called; see [workers.Guard].
	AllowNetworks []netip.Prefix

	// Concurrency is the highest number of concurrent deliveries. As many connections to one host are kept, and twice as many in all. The worker does not
	// enforce it: the dispatcher does.
	Concurrency int

	// Secrets sign the jobs of flows without secrets, and jobs without a flow, towards the origin of URL only. They need
	// a URL. Up to MaxSecrets, the newest first; all of them sign, so that receivers can change from one to the next.
	Secrets []string

	// Format is how a request carries its job; "" is FormatStandard.
	Format Format

	// CloudEvents are for the formats that make events, and for no other.
	CloudEvents CloudEvents

	// Batch is how a batch of jobs is sent: see [Worker.DeliverBatch]. "" is an array. Formats that make events send their own form.
	Batch workers.BatchFormat

	// TLS are the certificates of connections to receivers.
	TLS outgoing.TLS

	// EgressProxy is the proxy that all requests go through, as http://user:password@host:port; "" for none. The guard then sees only the proxy's
	// address: AllowNetworks must have it unless it is public. Addresses in URLs are still checked; the proxy checks names.
	EgressProxy string

	// ConnectionMaxAge is the age at which a connection takes no new request: see [outgoing.Config]. 0: no maximum.
	ConnectionMaxAge time.Duration

	// Read by New.
	home    own      // of flows without settings of their own: its target is URL
	signers []signer // of Secrets
}

// DefaultConfig returns the defaults: every job names its URL, 15 s, a retry after every status but 2xx and 410, the public internet only, no
// signatures.
func DefaultConfig() Config {
	return Config{
		JobURL: true, Timeout: 15 * time.Second, Policy: workers.DefaultPolicy(), Concurrency: 256, Format: FormatStandard,
		ConnectionMaxAge: outgoing.DefaultConnectionMaxAge,
	}
}

// Validate reports every fault of the settings, joined, or nil. Each begins
// with the key of the configuration. No fault repeats a secret. The files of TLS are for
// [outgoing.TLS.Check] to read.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", table, key, fmt.Sprintf(format, args...)))
	}
	if c.URL != "" {
		if _, err := outgoing.ParseURL(c.URL); err != nil {
			fail("url", "%v", err)
		}
	} else if !c.JobURL && !c.FlowURLs {
		fail("url", "is missing, and job_url = false lets no job name one")
	}
	errs = append(errs, c.sending().Validate(table, "url"))
	c.validateSecrets(fail)
	c.validateFormat(fail)
	errs = append(errs, c.Batch.Validate())
	return errors.Join(errs...)
}

// faulter reports the fault of a key.
type faulter func(key, format string, args ...any)

func (c Config) validateSecrets(fail faulter) {
	if len(c.Secrets) == 0 {
		return
	}
	if c.URL == "" {
		fail("secrets", "sign only what goes to the origin of webhook.url, which is not set: set it, or give each flow secrets of its own")
	}
	if len(c.Secrets) > MaxSecrets {
		fail("secrets", "%d of them: at most %d sign at a time", len(c.Secrets), MaxSecrets)
	}
	for i, secret := range c.Secrets {
		if err := CheckSecret(secret); err != nil {
			fail("secrets", "number %d: %v", i+1, err)
		} else if slices.Contains(c.Secrets[:i], secret) {
			fail("secrets", "number %d: is in the list twice", i+1)
		}
	}
}

func (c Config) validateFormat(fail faulter) {
	if c.Format != "" && !slices.Contains(Formats(), c.Format) {
		var names []string
		for _, format := range Formats() {
			names = append(names, string(format))
		}
		fail("format", "%q: want %s", c.Format, strings.Join(names, ", "))
		return
	}
	if !c.Format.makesEvents() {
		if c.CloudEvents.Source != "" {
			fail("cloudevents.source", "%q: is for the formats %s and %s only", c.CloudEvents.Source, FormatCloudEvents, FormatStructured)
		}
		return
	}
	if err := c.CloudEvents.checkSource(); err != nil {
		fail("cloudevents.source", "%v", err)
	}
	if err := c.CloudEvents.checkType(); err != nil {
		fail("cloudevents.type", "%v", err)
	}
}

// sending are the settings of the requests that go out.
func (c Config) sending() outgoing.Config {
	return outgoing.Config{
		Timeout: c.Timeout, Policy: c.Policy, AllowNetworks: c.AllowNetworks, Concurrency: c.Concurrency,
		TLS: c.TLS, EgressProxy: c.EgressProxy, ConnectionMaxAge: c.ConnectionMaxAge, Home: c.URL,
	}
}

// read prepares valid settings for deliveries.
func (c *Config) read() (err error) {
	if c.URL != "" {
		if c.home.target, err = outgoing.ParseURL(c.URL); err != nil {
			return err
		}
	}
	c.signers, err = newSigners(c.Secrets)
	return err
}
