package webhook

import (
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// homeTarget returns the target of jobs that name no URL: the bucket's URL, which a worker reads
// once, or the zero target if the bucket has none.
func (c *Config) homeTarget() (outgoing.Target, error) {
	if c.URL == "" || c.home.URL != nil {
		return c.home, nil
	}
	return outgoing.ParseURL(c.URL)
}

// targetOf returns the target of a job that names jobURL. If that is "", it is configured, the
// target of its flow or bucket, or zero. The error is a [*shaper.FieldError].
func (c *Config) targetOf(jobURL string, configured outgoing.Target) (outgoing.Target, error) {
	switch {
	case jobURL == "" && configured.URL == nil:
		return outgoing.Target{}, &shaper.FieldError{Field: "url", Reason: "is missing, and the bucket has none"}
	case jobURL == "":
		return configured, nil
	case !c.JobURL:
		return outgoing.Target{}, ErrURLNotAllowed
	}
	t, err := outgoing.ParseURL(jobURL)
	if err != nil {
		return outgoing.Target{}, &shaper.FieldError{Field: "url", Reason: err.Error()}
	}
	return t, nil
}
