package webhook

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// targetOf returns the target of a job that names jobURL. If that is "", it is configured, the
// target of its flow or bucket, or zero. The error is a [*shaper.FieldError], or an errFlow.
func (c *Config) targetOf(jobURL string, configured outgoing.Target) (outgoing.Target, error) {
	switch {
	case jobURL == "" && configured.URL == nil && c.FlowURLs: // its flow had one when the job was enqueued
		return outgoing.Target{}, fmt.Errorf("%w: it has no URL, nor has the bucket", errFlow)
	case jobURL == "" && configured.URL == nil:
		return outgoing.Target{}, &shaper.FieldError{Field: "url", Reason: "is missing, and the bucket has none"}
	case jobURL == "":
		return configured, nil
	case !c.JobURL:
		return outgoing.Target{}, ErrURLNotAllowed
	case shaper.IsRelative(jobURL):
		return outgoing.Target{}, &shaper.FieldError{Field: "url", Reason: "want an absolute URL that begins with http:// or https://: a path is for buckets that call an API, with the worker http"}
	}
	t, err := outgoing.ParseURL(jobURL)
	if err != nil {
		return outgoing.Target{}, &shaper.FieldError{Field: "url", Reason: err.Error()}
	}
	return t, nil
}
