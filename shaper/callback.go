package shaper

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
)

// Callbacks say how a bucket tells what became of its jobs. A callback is a job of another bucket, whose payload is the outcome: the JSON
// of [JobResult] with a type and a time. It is written together with the end of the job, it waits while the other bucket is full, and
// it is never dropped. Callbacks that wait count against the capacity of the bucket, and of the flow and the group of the job.
type Callbacks struct {
	// Bucket delivers them. It makes no callbacks itself. "": there are none, and no job may name a URL.
	Bucket string

	// URL and FailureURL are those of jobs that do not name their own: see [Job].
	URL        string
	FailureURL string

	// Origins are where the URLs of jobs may point, such as "https://acme.example"; AnyOrigin stands for all. The origins of URL and
	// FailureURL are always allowed. Without any, a job may name no other: a callback is signed with the secrets of the bucket that
	// delivers it, and the caller of the job may not be for that bucket.
	Origins []string

	// MaxPayload is how many bytes a callback may have. The body of an answer is cut to that, and the callback says so. 0 means
	// MaxPayload of [DefaultBucket]; more than the other bucket takes would never get in.
	MaxPayload int64
}

// AnyOrigin in [Callbacks.Origins] lets jobs name any URL.
const AnyOrigin = "*"

// Bounds of callbacks.
const (
	MaxCallbackURL     = 2048     // bytes
	MinCallbackPayload = 16 << 10 // bytes: what a callback without a body has at most
)

// URLOf is where the outcome of a job is told, "" nowhere. The job's own URLs are callbackURL and failureURL. A dead letter
// is told to the failure URL, or where there is none to the other one.
func (c Callbacks) URLOf(state State, callbackURL, failureURL string) string {
	told := cmp.Or(callbackURL, c.URL)
	if state == StateDead {
		return cmp.Or(failureURL, c.FailureURL, told)
	}
	return told
}

// Has reports whether a job has a callback when it ends. A job that is sent once has none: its waiter has the result.
func (c Callbacks) Has(job *Job) bool {
	return c.Bucket != "" && !job.Once && c.URLOf(StateDead, job.CallbackURL, job.FailureURL) != ""
}

// Check reports every fault of the URLs that a job names, joined, each a [*FieldError]; or nil. bucket is that of the job.
func (c Callbacks) Check(bucket string, job *Job) error {
	var errs []error
	for _, given := range []struct{ field, url string }{{"callback_url", job.CallbackURL}, {"failure_url", job.FailureURL}} {
		var reason string
		switch {
		case given.url == "":
			continue
		case c.Bucket == "":
			reason = fmt.Sprintf("bucket %q makes no callbacks: its configuration has no [buckets.callbacks]", bucket)
		case job.Once:
			reason = "a job that is sent once has no callback: wait for its result"
		default:
			reason = c.fault(bucket, given.url)
		}
		if reason != "" {
			errs = append(errs, &FieldError{Field: given.field, Reason: reason})
		}
	}
	return errors.Join(errs...)
}

// fault is why a job may not name a URL, "" if it may.
func (c Callbacks) fault(bucket, text string) string {
	if reason := callbackURLFault(text); reason != "" {
		return reason
	}
	origin, _ := originOfText(text)
	for _, allowed := range append([]string{c.URL, c.FailureURL}, c.Origins...) {
		if known, err := originOfText(allowed); allowed == AnyOrigin || err == nil && known == origin {
			return ""
		}
	}
	return fmt.Sprintf("the callbacks of bucket %q do not go to %s: its configuration allows them in callbacks.origins", bucket, origin)
}

func originOfText(text string) (Origin, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Origin{}, err
	}
	return OriginOf(u)
}

// OriginFault is why a text can be none of [Callbacks.Origins], "" if it can.
func OriginFault(text string) string {
	if text == AnyOrigin {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "want an origin, such as https://acme.example, or \"*\" for any"
	}
	if _, err := OriginOf(u); err != nil {
		return err.Error()
	}
	return ""
}

// callbackURLFault does not repeat the URL, which may hold a secret.
func callbackURLFault(text string) string {
	if len(text) > MaxCallbackURL {
		return fmt.Sprintf("has %d bytes: want at most %d", len(text), MaxCallbackURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		return "is not a URL"
	}
	if _, err := OriginOf(u); err != nil {
		return err.Error()
	}
	return ""
}

// validate reports every fault, each with its key of the configuration.
func (c Callbacks) validate(bucket string) []error {
	f := faults{prefix: "callbacks."}
	if c.Bucket == "" && (c.URL != "" || c.FailureURL != "" || c.MaxPayload != 0 || len(c.Origins) > 0) {
		f.add("bucket", "is missing: want the name of the bucket that delivers")
	}
	if c.Bucket != "" && c.Bucket == bucket {
		f.add("bucket", "%q: is the bucket itself: name another one, or its callbacks would wait for the places that they take", c.Bucket)
	}
	for _, given := range []struct{ key, url string }{{"url", c.URL}, {"failure_url", c.FailureURL}} {
		if reason := callbackURLFault(given.url); given.url != "" && reason != "" {
			f.add(given.key, "%s", reason)
		}
	}
	for _, origin := range c.Origins {
		if reason := OriginFault(origin); reason != "" {
			f.add("origins", "%q: %s", origin, reason)
		}
	}
	if c.MaxPayload != 0 && c.MaxPayload < MinCallbackPayload {
		f.add("bucket", "%q: takes payloads of %d bytes: want a max_payload of %d or more", c.Bucket, c.MaxPayload, MinCallbackPayload)
	}
	return f.errs
}
