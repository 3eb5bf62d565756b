package shaper

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
)

// Callbacks configure how a bucket reports the outcomes of its jobs. A callback is a job of another bucket. Its payload is the outcome: the JSON of
// [JobResult] with a type and a time. It is stored together with the end of the job, waits while the other bucket is full, and is never dropped.
// Waiting callbacks count against the capacity of the bucket, and of the job's flow and group.
type Callbacks struct {
	// Bucket delivers the callbacks. It makes no callbacks itself. "": there are none, and no job may name a URL.
	Bucket string

	// URL and FailureURL are for jobs that do not name their own: see [Job].
	URL        string
	FailureURL string

	// Origins are where the URLs of jobs may point, such as "https://acme.example"; AnyOrigin allows all. The origins of URL and FailureURL are
	// always allowed. Without Origins, a job may name no other: callbacks are signed with the secrets of the delivering bucket, which the caller of
	// the job may not be allowed to use.
	Origins []string

	// MaxPayload is the size of a callback in bytes. The response body is cut to fit, and the callback says so. 0 means MaxPayload of
	// [DefaultBucket]. A callback of more bytes than the other bucket accepts would never be enqueued.
	MaxPayload int64
}

// AnyOrigin in [Callbacks.Origins] lets jobs name any URL.
const AnyOrigin = "*"

// Bounds of callbacks.
const (
	MaxCallbackURL     = 2048     // bytes
	MinCallbackPayload = 16 << 10 // bytes: the most that a callback without a body has
)

// URLOf returns the URL that receives the outcome of a job, "" for none. callbackURL and failureURL are the job's own URLs. Dead letters go to the
// failure URL, or else to the callback URL.
func (c Callbacks) URLOf(state State, callbackURL, failureURL string) string {
	target := cmp.Or(callbackURL, c.URL)
	if state == StateDead {
		return cmp.Or(failureURL, c.FailureURL, target)
	}
	return target
}

// Has reports whether a job has a callback when it ends. A job that is sent once has none: its waiter gets the result.
func (c Callbacks) Has(job *Job) bool {
	return c.Bucket != "" && !job.Once && c.URLOf(StateDead, job.CallbackURL, job.FailureURL) != ""
}

// Check reports every fault of the URLs that a job names, joined, each a [*FieldError]; or nil. bucket is the job's bucket.
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

// fault returns why a job may not name a URL, "" if it may.
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

// OriginFault returns why a text cannot be one of [Callbacks.Origins], "" if it can.
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

// callbackURLFault returns what is wrong with a URL, "" if nothing is. It does not repeat the URL, which may hold a secret.
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
