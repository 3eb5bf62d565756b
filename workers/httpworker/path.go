package httpworker

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/tundish-io/tundish/workers/outgoing"
)

// below returns the address of a path and a query below a base URL, as text such as "/charges/7?expand=customer", or "" for the base
// URL itself. The path is taken as it is spelled. An error does not repeat it.
func below(base outgoing.Target, text string) (*url.URL, error) {
	path, query, hasQuery := strings.Cut(text, "?")
	if len(text) > outgoing.MaxURLBytes {
		return nil, errors.New("is too long")
	}
	if path != "" && path[0] != '/' {
		return nil, errors.New("want a path that begins with /, such as /customers/7 (over HTTP and in commands it is path, not url): " +
			"jobs of this bucket go below its base_url, and cannot name another address")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' || r == '\\' }) {
		return nil, errors.New(`holds a space, a #, a \ or a character beyond ASCII: percent-encode it`)
	}
	if err := staysBelow(path); err != nil {
		return nil, err
	}
	u := *base.URL
	raw := strings.TrimSuffix(u.EscapedPath(), "/") + path
	decoded, err := url.PathUnescape(raw)
	if err != nil { // of the base URL, as staysBelow has seen the rest
		return nil, err
	}
	u.Path, u.RawPath = decoded, raw
	if hasQuery {
		u.RawQuery = strings.TrimSuffix(strings.TrimPrefix(u.RawQuery+"&"+query, "&"), "&")
	}
	return &u, nil
}

// staysBelow wants that no reading of a path leaves the base URL. Servers differ: some decode a path twice, cut its parts at a ";", or trim
// them. So no part may be "." or ".." after that, none may be empty between two slashes, and nothing may be percent-encoded twice.
func staysBelow(path string) error {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return errors.New("holds a % that begins no percent-encoding")
	}
	decoded = strings.ReplaceAll(decoded, `\`, "/")
	switch {
	case encoded.MatchString(decoded):
		return errors.New("is percent-encoded twice")
	case strings.ContainsFunc(decoded, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("holds a control character")
	case strings.Contains(decoded, "//"):
		return errors.New("has an empty part between two slashes")
	}
	for part := range strings.SplitSeq(decoded, "/") {
		part, _, _ = strings.Cut(part, ";")
		if part = strings.TrimSpace(part); part == "." || part == ".." {
			return errors.New(`has a part that climbs, "." or ".."`)
		}
	}
	return nil
}

// encoded is what a decoder makes another character of.
var encoded = regexp.MustCompile("%[0-9A-Fa-f]{2}")
