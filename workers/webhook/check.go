package webhook

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// ErrURLNotAllowed is the fault of a job that names a URL in a bucket where
// jobs may not. It is a [*shaper.FieldError] too.
var ErrURLNotAllowed error = &shaper.FieldError{
	Field:  "url",
	Reason: "url-not-allowed: the bucket's own URL is used, and job_url = false lets no job name another",
}

var methods = []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"}

// ours are the headers that the worker writes, so that neither a job nor a flow can, in addition to the headers of the connection.
var ours = []string{"webhook-"}

// CheckJob reports every fault of the job's URL, method and headers, joined,
// each a [*shaper.FieldError]; or nil. Enqueue calls it, and Deliver checks
// again, because the settings may have changed since. A job without a URL is valid if the
// bucket has one, or with [Config.FlowURLs]. Else the URL of its flow does not count, because enqueue does not read it.
// A job whose URL holds an address that the guard would refuse is already refused here.
func (c Config) CheckJob(job *shaper.Job) error {
	var t outgoing.Target
	var err error
	if job.URL != "" || c.URL == "" && !c.FlowURLs { // Validate has checked the bucket's
		t, err = c.targetOf(job.URL, outgoing.Target{})
	}
	if job.URL != "" && err == nil {
		if addr, ok := t.Origin.Addr(); ok && workers.Blocks(addr, c.AllowNetworks) {
			err = &shaper.FieldError{
				Field:  "url",
				Reason: fmt.Sprintf("the address %s is not on the public internet: webhook.allow_networks of the bucket can let it through", addr),
			}
		}
	}
	return errors.Join(err, c.checkPayload(job), outgoing.CheckMethod(job.Method, methods...), c.checkHeaders(job.Headers))
}

// checkPayload requires a payload if the method has a body. A DELETE may have one. An event of CloudEvents is in the body.
func (c *Config) checkPayload(job *shaper.Job) error {
	bodyless, given := isBodyless(job.Method), len(job.Payload) > 0
	switch {
	case bodyless && c.Format.makesEvents():
		return &shaper.FieldError{Field: "method", Reason: fmt.Sprintf("a %s has no body for an event, and the bucket sends CloudEvents: use another method", job.Method)}
	case bodyless && given:
		return errBody(job.Method)
	case !bodyless && !given && (job.Method != http.MethodDelete || c.Format.makesEvents()):
		return &shaper.FieldError{Field: "payload", Reason: "is missing or null: give any other JSON value"}
	}
	return nil
}

// isBodyless reports whether requests with a method have no body.
func isBodyless(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// errBody is the fault of a payload that a request cannot carry.
func errBody(method string) error {
	return &shaper.FieldError{Field: "payload", Reason: "a " + method + " has no body: send none, or use another method"}
}

func (c *Config) checkHeaders(headers map[string][]string) error {
	return errors.Join(outgoing.CheckHeaders(headers, ours...), c.Format.checkHeaders(headers))
}
