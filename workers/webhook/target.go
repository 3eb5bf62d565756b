package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// target is a checked URL, its host in the spelling of the origin that serves it. Requests
// share the URL and never change it.
type target struct {
	url    *url.URL
	origin shaper.Origin
}

// is reports whether the target is of an origin. The zero target is of none.
func (t target) is(o shaper.Origin) bool { return t.url != nil && t.origin == o }

// homeTarget returns the target of jobs that name no URL: the bucket's URL, which a worker reads
// once, or the zero target if the bucket has none.
func (c Config) homeTarget() (target, error) {
	if c.URL == "" || c.home.url != nil {
		return c.home, nil
	}
	return parseURL(c.URL)
}

// targetOf returns the target of a job that names jobURL. If that is "", it is configured, the
// target of its flow or bucket, or zero. The error is a [*shaper.FieldError].
func (c Config) targetOf(jobURL string, configured target) (target, error) {
	switch {
	case jobURL == "" && configured.url == nil:
		return target{}, &shaper.FieldError{Field: "url", Reason: "is missing, and the bucket has none"}
	case jobURL == "":
		return configured, nil
	case !c.JobURL:
		return target{}, ErrURLNotAllowed
	}
	t, err := parseURL(jobURL)
	if err != nil {
		return target{}, &shaper.FieldError{Field: "url", Reason: err.Error()}
	}
	return t, nil
}

// parseURL takes an absolute http or https URL, and nothing that two programs
// might read differently. Its errors do not repeat the URL: it may hold secrets.
func parseURL(s string) (target, error) {
	if len(s) > MaxURLBytes {
		return target{}, fmt.Errorf("has %d bytes: want at most %d", len(s), MaxURLBytes)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return target{}, errors.New("holds a space or a control character: percent-encode it")
	}
	u, err := url.Parse(s)
	if err != nil {
		return target{}, errors.New("is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, errors.New("want an absolute URL that begins with http:// or https://")
	case u.User != nil:
		return target{}, errors.New("holds user information: send an Authorization header instead")
	case strings.Contains(s, "#"):
		return target{}, errors.New("holds a fragment, which is never sent")
	case strings.ContainsFunc(u.RawQuery, func(r rune) bool { return r > 0x7f }):
		return target{}, errors.New("has characters beyond ASCII in its query: percent-encode them")
	}
	origin, err := shaper.OriginOf(u)
	if err != nil {
		return target{}, err
	}
	u.Host = origin.Authority()
	return target{url: u, origin: origin}, nil
}
