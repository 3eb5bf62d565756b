package webhook

import (
	"errors"
	"fmt"

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

var methods = []string{"POST", "PUT", "PATCH", "DELETE"}

// ours are the headers that the worker writes, so that neither a job nor a flow can, beside those of the connection.
var ours = []string{"webhook-"}

// CheckJob reports every fault of the job's URL, method and headers, joined,
// each a [*shaper.FieldError]; or nil. Enqueue calls it, and Deliver checks
// again, because the settings may have changed since. A job without a URL is valid if the
// bucket has one, or with [Config.FlowURLs]. Else the URL of its flow does not count, because enqueue does not read it.
// A job whose URL holds an address that the guard would refuse is already refused here.
func (c Config) CheckJob(job *shaper.Job) error {
	var t outgoing.Target
	var err error
	if job.URL != "" || c.URL == "" && !c.FlowURLs { // Validate has seen the bucket's
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
	return errors.Join(err, checkPayload(job), outgoing.CheckMethod(job.Method, methods...), c.checkHeaders(job.Headers))
}

// checkPayload wants a payload: a webhook without a body tells nothing.
func checkPayload(job *shaper.Job) error {
	if len(job.Payload) > 0 {
		return nil
	}
	return &shaper.FieldError{Field: "payload", Reason: "is missing or null: give any other JSON value"}
}

func (c *Config) checkHeaders(headers map[string][]string) error {
	return errors.Join(outgoing.CheckHeaders(headers, ours...), c.Format.checkHeaders(headers))
}
