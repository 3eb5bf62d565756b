package httpworker

import (
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/workers/outgoing"
)

// below returns the address of a path and a query below a base URL, from text such as "/charges/7?expand=customer", or "" for the base URL itself. The
// path keeps its spelling. An error does not repeat it.
func below(base outgoing.Target, text string, allowed []string) (*url.URL, error) {
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
	if err := staysBelow(path, allowed); err != nil {
		return nil, err
	}
	u := *base.URL
	raw := strings.TrimSuffix(u.EscapedPath(), "/") + path
	decoded, err := url.PathUnescape(raw)
	if err != nil { // of the base URL: staysBelow has checked the rest
		return nil, err
	}
	u.Path, u.RawPath = decoded, raw
	if hasQuery {
		u.RawQuery = strings.TrimSuffix(strings.TrimPrefix(u.RawQuery+"&"+query, "&"), "&")
	}
	return &u, nil
}

// Parts that paths may hold if [Config.AllowInPath] names them.
const (
	EmptyParts  = "//"  // parts between two slashes that are empty
	Backslashes = "%5C" // percent-encoded: some servers read slashes
)

// PathParts returns the valid values of [Config.AllowInPath].
func PathParts() []string { return []string{EmptyParts, Backslashes} }

// staysBelow returns an error if a path leaves the base URL in any reading. Servers differ: some decode a path twice, cut its parts at a ";", trim them,
// or read a backslash as a slash. So no part may be "." or ".." in any reading. Otherwise a part may hold anything that JavaScript's encodeURIComponent
// returns, a URL too, except backslashes.
func staysBelow(path string, allowed []string) error {
	if strings.Contains(path, "//") && !slices.Contains(allowed, EmptyParts) {
		return errors.New("has an empty part between two slashes: where the API wants that, set allow_in_path = [\"//\"]")
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return errors.New("holds a % that begins no percent-encoding")
	}
	if strings.Contains(decoded, `\`) && !slices.Contains(allowed, Backslashes) {
		return errors.New("holds a backslash: where the API wants that, set allow_in_path = [\"%5C\"]")
	}
	reading := path
	for range mostReadings {
		if slices.ContainsFunc(strings.FieldsFunc(reading, isSeparator), climbs) {
			return errors.New(`has a part that climbs, "." or "..", also where it is percent-encoded`)
		}
		next := overlong.Replace(encoded.ReplaceAllStringFunc(reading, func(code string) string {
			b, _ := hex.DecodeString(code[1:]) // two digits
			return string(b)
		}))
		if next == reading {
			return nil
		}
		reading = next
	}
	return errors.New("is percent-encoded too often")
}

// mostReadings is how often a path is decoded. Each time removes one level of percent-encoding.
const mostReadings = 8

func isSeparator(r rune) bool { return r == '/' || r == '\\' }

// climbs reports whether a server may read "." or ".." in a part.
func climbs(part string) bool {
	part, _, _ = strings.Cut(part, ";")
	part, _, _ = strings.Cut(part, "\x00")
	part = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, part))
	return part == "." || part == ".."
}

// encoded matches text that a decoder replaces by another character.
var encoded = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// overlong replaces characters in more bytes than UTF-8 needs, as lax decoders do.
var overlong = strings.NewReplacer("\xc0\xae", ".", "\xe0\x80\xae", ".", "\xc0\xaf", "/", "\xe0\x80\xaf", "/", "\xc1\x9c", `\`)
