package llm

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// table is the worker's table in the configuration.
const table = "llm"

// API is the form of requests, responses and errors. Many providers serve OpenAI's.
type API string

// The APIs.
const (
	OpenAI    API = "openai"
	Anthropic API = "anthropic"
)

// Bounds and defaults of the settings.
const (
	DefaultExpectedOutput = 500
	DefaultExpectedInput  = 4000
	DefaultTimeout        = 10 * time.Minute // as long as the providers' own clients wait
	DefaultIdleTimeout    = 5 * time.Minute

	minIdleTimeout = time.Second

	maxModels     = 100 // patterns
	maxModelBytes = 200 // of a model's name
)

// Config selects the API of a bucket's jobs, and how their tokens are counted.
type Config struct {
	API API

	// HTTP are the settings of the requests, as of the worker http. Its Table is ignored.
	HTTP httpworker.Config

	// Models are patterns of the models that jobs may name, as [path.Match] reads them: "gpt-4o-mini*". A * matches no slash, so "*/*" matches
	// "meta/llama". Empty: any model. The name is the deployment in the path, otherwise the model in the body. A client's request that names neither is
	// not bounded by them.
	Models []string

	// ExpectedOutput is the expected number of output tokens of a response, until [Learned] has an estimate.
	ExpectedOutput int64

	// ExpectedInput is the expected number of input tokens outside of the body, until [Learned] has an estimate. It applies to each document, and to what
	// the request refers to or has the provider search. At least 1.
	ExpectedInput int64

	// IncludeUsage adds stream_options.include_usage to a streaming chat of a client, see [Worker.Ask]: OpenAI reports the usage of a stream on
	// request only.
	IncludeUsage bool

	// CountMaxTokens says that the provider counts the maximum that a request names when it accepts the request, whatever the response has. The request
	// reserves that maximum, and its charge is no lower. A request without a maximum has no such bound.
	CountMaxTokens bool

	// IdleTimeout is how long a response that is streamed to a client may stand still: see [Worker.Open]. 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// DefaultConfig returns the defaults for an API: the defaults of the worker http with [DefaultTimeout], and any model. OpenAI counts the maximum that a
// request names, Anthropic does not.
func DefaultConfig(api API) Config {
	c := Config{
		API: api, HTTP: httpworker.DefaultConfig(), ExpectedOutput: DefaultExpectedOutput, ExpectedInput: DefaultExpectedInput, IncludeUsage: true,
		CountMaxTokens: api == OpenAI, IdleTimeout: DefaultIdleTimeout,
	}
	c.HTTP.Timeout = DefaultTimeout
	return c
}

// Validate reports every fault of the settings, joined, or nil. Each begins with the key of the configuration. No fault repeats a secret.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", table, key, fmt.Sprintf(format, args...)))
	}
	if c.API != OpenAI && c.API != Anthropic {
		fail("api", "%q: want %q or %q", c.API, OpenAI, Anthropic)
	}
	if len(c.Models) > maxModels {
		fail("models", "%d patterns: want at most %d", len(c.Models), maxModels)
	}
	for i, pattern := range c.Models {
		_, err := path.Match(pattern, "")
		switch {
		case err != nil || pattern == "" || len(pattern) > maxModelBytes:
			fail("models", "%q: want a pattern of models, such as \"gpt-4o-mini*\"", pattern)
		case slices.Contains(c.Models[:i], pattern):
			fail("models", "%q: is in the list twice", pattern)
		}
	}
	if c.ExpectedOutput < 0 || c.ExpectedOutput > shaper.MaxBudgetAmount {
		fail("expected_output", "%d: want 0 to %d tokens", c.ExpectedOutput, int64(shaper.MaxBudgetAmount))
	}
	if c.ExpectedInput < 1 || c.ExpectedInput > shaper.MaxBudgetAmount {
		fail("expected_input", "%d: want 1 to %d tokens", c.ExpectedInput, int64(shaper.MaxBudgetAmount))
	}
	if c.IdleTimeout != 0 && (c.IdleTimeout < minIdleTimeout || c.IdleTimeout > outgoing.MaxTimeout) {
		fail("idle_timeout", "%s: want %s to %s", c.IdleTimeout, minIdleTimeout, outgoing.MaxTimeout)
	}
	return errors.Join(append(errs, c.http().Validate())...)
}

// accountHeaders name the account of a provider that pays for a call, and whose limits count it. With the bucket's key the operator chooses the account:
// the headers of the bucket and of its flows may set them.
var accountHeaders = []string{"openai-organization", "openai-project", "x-goog-user-project"}

func (c Config) idle() time.Duration { return cmp.Or(c.IdleTimeout, DefaultIdleTimeout) }

// http are the settings of the requests, with faults that name the table of this worker.
func (c Config) http() httpworker.Config {
	h := c.HTTP
	h.Table, h.Reserved = table, accountHeaders
	return h
}

// CheckFlow reports every fault of a flow's own settings for deliveries: see [httpworker.Config.CheckFlow].
func (c Config) CheckFlow(own *shaper.OwnDelivery) error { return c.http().CheckFlow(own) }

// CheckJob reports every fault of the job's path, method, headers and body, joined, each a [*shaper.FieldError]; or nil. Enqueue calls
// it, and Deliver checks again, because the settings may have changed since.
func (c Config) CheckJob(job *shaper.Job) error {
	_, err := c.read(job.Method, job.URL, job.Payload)
	return errors.Join(c.http().CheckJob(job), err)
}

// read parses the request of a job. It returns all faults, joined, each a [*shaper.FieldError] that repeats nothing of the prompt.
func (c Config) read(method, address string, payload []byte) (*request, error) {
	var errs []error
	if method != "" && method != http.MethodPost {
		errs = append(errs, &shaper.FieldError{Field: "method", Reason: "want POST: jobs of this bucket are requests to a model"})
	}
	r, err := parse(c.API, c.endpoint(address), ReadBody(payload))
	errs = append(errs, err)
	if r != nil && r.streams {
		errs = append(errs, &shaper.FieldError{Field: "payload.stream", Reason: "queued jobs cannot stream: leave it out, or make it false"})
	}
	if r != nil && err == nil && r.model == "" && len(c.Models) > 0 {
		errs = append(errs, &shaper.FieldError{Field: "payload.model", Reason: fmt.Sprintf("is missing, and this bucket takes the models %s only", strings.Join(c.Models, ", "))})
	}
	if r != nil && r.model != "" && !c.Takes(r.model) {
		errs = append(errs, &shaper.FieldError{
			Field:  "payload.model",
			Reason: fmt.Sprintf("%q: this bucket takes the models %s: name one of them, or add a pattern to %s.models", r.model, strings.Join(c.Models, ", "), table),
		})
	}
	return r, errors.Join(errs...)
}

// Takes reports whether jobs may name the model.
func (c Config) Takes(model string) bool {
	return len(c.Models) == 0 || slices.ContainsFunc(c.Models, func(pattern string) bool {
		matches, _ := path.Match(pattern, model) // Validate has checked the pattern
		return matches
	})
}
