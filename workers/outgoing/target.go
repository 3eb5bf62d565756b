package outgoing

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// MaxURLBytes bounds a URL.
const MaxURLBytes = 2048

// Target is a checked URL, its host in the spelling of the origin that serves it. Requests
// share the URL and never change it. The zero Target is nowhere.
type Target struct {
	URL    *url.URL
	Origin shaper.Origin
}

// Is reports whether the target is of an origin. The zero target is of none.
func (t *Target) Is(o shaper.Origin) bool { return t.URL != nil && t.Origin == o }

// ParseURL parses an absolute http or https URL, and rejects anything that two programs might read differently. Its errors do not repeat the URL: it may
// hold secrets.
func ParseURL(s string) (Target, error) {
	if len(s) > MaxURLBytes {
		return Target{}, fmt.Errorf("has %d bytes: want at most %d", len(s), MaxURLBytes)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Target{}, errors.New("holds a space or a control character: percent-encode it")
	}
	u, err := url.Parse(s)
	if err != nil {
		return Target{}, errors.New("is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return Target{}, errors.New("want an absolute URL that begins with http:// or https://")
	case u.User != nil:
		return Target{}, errors.New("holds user information: send an Authorization header instead")
	case strings.Contains(s, "#"):
		return Target{}, errors.New("holds a fragment, which is never sent")
	case strings.ContainsFunc(u.RawQuery, func(r rune) bool { return r > 0x7f }):
		return Target{}, errors.New("has characters beyond ASCII in its query: percent-encode them")
	}
	origin, err := shaper.OriginOf(u)
	if err != nil {
		return Target{}, err
	}
	u.Host = origin.Authority()
	return Target{URL: u, Origin: origin}, nil
}
