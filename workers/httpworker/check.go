package httpworker

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// CheckJob reports every fault of the job's path, method, headers and body, joined, each a [*shaper.FieldError]; or nil. Enqueue calls
// it, and Deliver checks again, because the settings may have changed since.
func (c Config) CheckJob(job *shaper.Job) error {
	var errs []error
	// The base URL does not matter here.
	if _, err := below(outgoing.Target{URL: new(url.URL)}, job.URL, c.AllowInPath); err != nil {
		errs = append(errs, &shaper.FieldError{Field: "path", Reason: err.Error()})
	}
	return errors.Join(append(errs, checkRequest(job.Method, job.Headers, job.Payload, c.notOfJobs()))...)
}

// checkRequest is CheckJob without the path. reserved are headers that no job can set.
func checkRequest(method string, headers map[string][]string, payload []byte, reserved []string) error {
	var noBody error
	if len(payload) > 0 && (method == http.MethodGet || method == http.MethodHead) {
		noBody = &shaper.FieldError{Field: "payload", Reason: "a " + method + " has no body: send none, or use another method"}
	}
	return errors.Join(outgoing.CheckMethod(method, methods...), outgoing.CheckHeaders(headers, reserved...), noBody)
}

// CheckFlow reports every fault of a flow's own settings for deliveries, joined, each a [*shaper.FieldError] that repeats neither a URL
// nor a secret; or nil.
func (c Config) CheckFlow(own *shaper.OwnDelivery) error {
	var errs []error
	reserved := c.Auth.Headers()
	if own.URL != "" {
		base, err := outgoing.ParseURL(own.URL)
		if err != nil {
			errs = append(errs, &shaper.FieldError{Field: "url", Reason: err.Error()})
		}
		if home, _ := outgoing.ParseURL(c.BaseURL); !home.Is(base.Origin) { // the bucket's credentials do not go there
			reserved = nil
		}
	}
	if len(own.Secrets) > 0 {
		errs = append(errs, &shaper.FieldError{Field: "secrets", Reason: "sign webhooks: a bucket of the worker " + c.table() + " sends none"})
	}
	headers := make(map[string][]string, len(own.Headers))
	for name, value := range own.Headers {
		headers[name] = []string{value}
	}
	return errors.Join(append(errs, outgoing.CheckHeaders(headers, reserved...))...)
}
