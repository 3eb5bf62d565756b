package httpworker

import (
	"errors"
	"net/url"
	"slices"
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
		return nil, errors.New("want a path that begins with /: jobs of this bucket go below its base_url, and cannot name another address")
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
	if err != nil {
		return nil, errors.New("holds a % that begins no percent-encoding")
	}
	u.Path, u.RawPath = decoded, raw
	if hasQuery {
		u.RawQuery = strings.TrimSuffix(strings.TrimPrefix(u.RawQuery+"&"+query, "&"), "&")
	}
	return &u, nil
}

// staysBelow wants that no reading of a path leaves the base URL: no "." or ".." and no empty part between two slashes, whether they
// are percent-encoded or not. Some servers decode a path twice, so what one more decoding would make of it counts too.
func staysBelow(path string) error {
	const decodings = 2
	for range decodings + 1 {
		parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' })
		if slices.Contains(parts, "..") || slices.Contains(parts, ".") {
			return errors.New("has a part that climbs, \".\" or \"..\"")
		}
		if strings.Contains(strings.ReplaceAll(path, `\`, "/"), "//") {
			return errors.New("has an empty part between two slashes")
		}
		decoded, err := url.PathUnescape(path)
		if strings.ContainsFunc(decoded, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("holds a control character")
		}
		if path = decoded; err != nil { // nobody can decode it any further: it is "" then
			path = ""
		}
	}
	return nil
}
