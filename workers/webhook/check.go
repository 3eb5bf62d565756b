package webhook

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// Bounds of a job's request.
const (
	MaxURLBytes    = 2048
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10 // names and values together
)

// ErrURLNotAllowed is the fault of a job that names a URL in a bucket where
// jobs may not. It is a [*shaper.FieldError] too.
var ErrURLNotAllowed error = &shaper.FieldError{
	Field:  "url",
	Reason: "url-not-allowed: the bucket's own URL is used, and job_url = false lets no job name another",
}

var methods = []string{"POST", "PUT", "PATCH", "DELETE"}

// ours are the headers that the worker or the connection writes, so that neither a
// job nor a flow can. Prefixes end in "-".
var ours = []string{
	"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "te",
	"trailer", "transfer-encoding", "upgrade", "proxy-", "webhook-", "tundish-",
}

// CheckJob reports every fault of the job's URL, method and headers, joined,
// each a [*shaper.FieldError]; or nil. Enqueue calls it, and Deliver checks
// again, because the settings may have changed since. A job without a URL is valid if the
// bucket has one; the URL of its flow does not count, because enqueue does not read it.
// A job whose URL holds an address that the guard would refuse is already refused here.
func (c Config) CheckJob(job *shaper.Job) error {
	var t target
	var err error
	if job.URL != "" || c.URL == "" { // Validate has seen the bucket's
		t, err = c.targetOf(job.URL, target{})
	}
	if job.URL != "" && err == nil {
		if addr, ok := t.origin.Addr(); ok && workers.Blocks(addr, c.AllowNetworks) {
			err = &shaper.FieldError{
				Field:  "url",
				Reason: fmt.Sprintf("the address %s is not on the public internet: webhook.allow_networks of the bucket can let it through", addr),
			}
		}
	}
	return errors.Join(err, checkMethod(job.Method), c.checkHeaders(job.Headers))
}

func checkMethod(method string) error {
	if method == "" || slices.Contains(methods, method) {
		return nil
	}
	return &shaper.FieldError{Field: "method", Reason: "want one of " + strings.Join(methods, ", ")}
}

func (c Config) checkHeaders(headers map[string][]string) error {
	return errors.Join(checkHeaders(headers), c.Format.checkHeaders(headers))
}

func checkHeaders(headers map[string][]string) error {
	if len(headers) == 0 {
		return nil
	}
	lines := 0
	for _, values := range headers {
		lines += len(values)
	}
	if lines > MaxHeaders {
		return &shaper.FieldError{
			Field:  "headers",
			Reason: fmt.Sprintf("%d of them: at most %d are taken", lines, MaxHeaders),
		}
	}
	var errs []error
	fail := func(field, reason string) {
		errs = append(errs, &shaper.FieldError{Field: field, Reason: reason})
	}
	size := 0
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			size += len(name) + len(value)
		}
		field, canonical := "headers."+name, textproto.CanonicalMIMEHeaderKey(name)
		switch twin, twice := seen[canonical]; {
		case !httpguts.ValidHeaderFieldName(name):
			fail(field, "is not a header's name")
		case slices.ContainsFunc(headers[name], func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }):
			fail(field, "its value holds characters that no header can")
		case isOurs(name):
			fail(field, "is the worker's to set")
		case canonical == "Content-Type" && len(headers[name]) > 1:
			fail(field, "has several values: a body has one type")
		case twice:
			fail(field, "is the same header as "+twin)
		}
		seen[canonical] = name
	}
	if size > MaxHeaderBytes {
		fail("headers", fmt.Sprintf("%d bytes in total: at most %d are taken", size, MaxHeaderBytes))
	}
	return errors.Join(errs...)
}

func isOurs(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(ours, func(reserved string) bool {
		return name == reserved || strings.HasSuffix(reserved, "-") && strings.HasPrefix(name, reserved)
	})
}
