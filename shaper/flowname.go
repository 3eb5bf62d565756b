package shaper

import (
	"fmt"
	"net/url"
	"unicode/utf8"

	"github.com/tundish-io/tundish/admission"
)

// NameOf returns the name of a job's flow, as Key defines it. Only with [FlowKeyJob] does the job's own field count. nil stands for a bucket without
// flows: then NameOf returns the job's field. An error is a [*FieldError].
func (f *FlowSettings) NameOf(job *Job) (string, error) {
	if f == nil {
		return job.Flow, nil
	}
	return nameOf("flow", f.Key, f.DefaultURL, job.Flow, job)
}

// nameOf returns the name of a job's flow or group; what says which.
func nameOf(what, key, defaultURL, given string, job *Job) (string, error) {
	fault := func(field, format string, args ...any) (string, error) {
		return "", &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	var name string
	switch key {
	case FlowKeyJob:
		if name = given; name == "" {
			return fault(what, "is missing: the bucket has %ss, and the job has to name its own", what)
		}
	case FlowKeyHost:
		target := job.URL
		if !NamesReceiver(target) {
			target = defaultURL
		}
		if target == "" {
			return fault("url", "is missing, and its host is what the bucket's %ss are named by", what)
		}
		u, err := url.Parse(target)
		if err != nil {
			return fault("url", "is not a URL, and its host is what the bucket's %ss are named by", what)
		}
		origin, err := OriginOf(u)
		if err != nil {
			return fault("url", "%v; the bucket's %ss are named by it", err, what)
		}
		name = origin.Authority()
	case FlowKeyCaller:
		if name = job.Identity.Caller; name == "" {
			return fault(what, "is named by the caller, and none is known")
		}
	default:
		header := admission.HeaderOf(key)
		if name = job.Identity.Headers[header]; name == "" {
			return fault(what, "is named by the header %s, which the request has not: send it", header)
		}
	}
	if len(name) > MaxFlowBytes || !utf8.ValidString(name) {
		return fault(what, "is named by %s, and that is none of at most %d bytes of UTF-8", key, MaxFlowBytes)
	}
	return name, nil
}
