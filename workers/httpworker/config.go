package httpworker

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// Config selects the API of a bucket's jobs, and the bounds of requests.
type Config struct {
	// Table is the worker's table in the configuration, which faults name; "" is "http".
	Table string

	BaseURL string            // that the paths of jobs go below
	Auth    Auth              // the credentials of requests to its origin
	Headers map[string]string // the same
	Files   Files             // the sources of secrets in Auth and Headers

	// Reserved are headers that no job can set, in lower case, in addition to the headers of Auth. Headers may have them.
	Reserved []string

	// AllowInPath are parts that the paths of jobs may hold although some servers read a way out of the base URL in them: see [PathParts].
	AllowInPath []string

	// Timeout bounds an attempt: to get a token, resolve, connect, send, and read the response. The lease must be at least as long.
	Timeout time.Duration

	// Policy decides what becomes of a job after each response.
	Policy workers.Policy

	// AllowNetworks are the networks beyond the public internet that may be called; see [workers.Guard]. They hold for the OAuth
	// server too.
	AllowNetworks []netip.Prefix

	// Concurrency is the highest number of concurrent deliveries: as many connections to one host are kept.
	Concurrency int

	// Batch is how a batch of jobs is sent: see [Worker.DeliverBatch]. "" is an array.
	Batch workers.BatchFormat

	TLS outgoing.TLS

	// EgressProxy is the proxy that requests to the API go through, as http://user:password@host:port; "" for none.
	EgressProxy string

	// ConnectionMaxAge is the age at which a connection takes no new request: see [outgoing.Config]. 0: no maximum.
	ConnectionMaxAge time.Duration

	// Read by New.
	home     own      // of flows without settings of their own: its base is BaseURL
	reserved []string // the result of notOfJobs
}

// DefaultStatuses returns the statuses after which a job is retried by default. Any other status is the API's final response.
func DefaultStatuses() []string { return []string{"408", "425", "429", "5xx"} }

// DefaultConfig returns the defaults: 30 s, another try after [DefaultStatuses], the public internet only, no credentials.
func DefaultConfig() Config {
	return Config{
		Timeout: 30 * time.Second, Policy: workers.Policy{Statuses: DefaultStatuses(), Hold: true}, Concurrency: 256,
		ConnectionMaxAge: outgoing.DefaultConnectionMaxAge,
	}
}

// Validate reports every fault of the settings, joined, or nil. Each begins with the key of the configuration. No fault repeats a
// secret. The files of TLS are for [outgoing.TLS.Check] to read.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", c.table(), key, fmt.Sprintf(format, args...)))
	}
	switch t, err := outgoing.ParseURL(c.BaseURL); {
	case c.BaseURL == "":
		fail("base_url", "is missing: want the address of the API, such as \"https://api.example.com/v1\"")
	case err != nil:
		fail("base_url", "%v", err)
	default:
		if err := c.sending().CheckAddress(c.table(), t.Origin); err != nil {
			fail("base_url", "%v", err)
		}
	}
	errs = append(errs, c.sending().Validate(c.table(), "base_url"))
	errs = append(errs, c.Batch.Validate())
	for _, part := range c.AllowInPath {
		if !slices.Contains(PathParts(), part) {
			fail("allow_in_path", "%q: want %s", part, strings.Join(PathParts(), " or "))
		}
	}
	c.Auth.validate(c.table(), c.sending(), fail)
	for name := range c.Headers {
		if err := outgoing.CheckHeaders(map[string][]string{name: {c.Headers[name]}}, c.Auth.Headers()...); err != nil {
			fail("headers", "%s: %s", name, strings.TrimPrefix(err.Error(), "headers."+name+": "))
		}
	}
	return errors.Join(errs...)
}

// notOfJobs are the headers that no job can set.
func (c Config) notOfJobs() []string { return append(c.Auth.Headers(), c.Reserved...) }

func (c Config) table() string { return cmp.Or(c.Table, "http") }

// sending are the settings of the requests that go out.
func (c Config) sending() outgoing.Config {
	return outgoing.Config{
		Timeout: c.Timeout, Policy: c.Policy, AllowNetworks: c.AllowNetworks, Concurrency: c.Concurrency,
		TLS: c.TLS, EgressProxy: c.EgressProxy, ConnectionMaxAge: c.ConnectionMaxAge, Home: c.BaseURL,
	}
}
