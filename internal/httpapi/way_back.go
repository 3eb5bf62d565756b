package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission/httplimit"
)

// wayBack leads the addresses of an API in the headers of its answers back to the proxy, or to an LLM route: a client that follows them is paced, and
// its key stays here.
// Addresses in bodies stay as they are.
type wayBack struct {
	base *url.URL // of the API; nil leads nothing back
	path string   // of it, without a slash at its end
	own  string   // the address of the proxy, as the client addressed it
}

// wayBack returns the one for a response to r. base is the URL below which the request went. path is that of this server below which the client
// reaches the same URL.
func (a *access) wayBack(r *http.Request, base, path string) *wayBack {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return &wayBack{}
	}
	return &wayBack{base: u, path: strings.TrimSuffix(u.EscapedPath(), "/"), own: a.origin(r) + path}
}

var (
	hostPattern   = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]+$`)
	prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)
)

// origin is the beginning of the address of this server as the client of a request has addressed it. What a proxy in front says of that counts if
// the proxy is trusted. That the client came by TLS counts in any case: else its next request, with its key, might go in the clear.
func (a *access) origin(r *http.Request) string {
	scheme, host, prefix := "http", r.Host, ""
	said := func(name string) string {
		first, _, _ := strings.Cut(r.Header.Get(name), ",")
		return strings.TrimSpace(first)
	}
	proto := strings.ToLower(said("X-Forwarded-Proto"))
	if r.TLS != nil || proto == "https" {
		scheme = "https"
	}
	if a.proxies.Trusts(httplimit.Peer(r)) {
		if proto == "http" {
			scheme = proto
		}
		if named := said("X-Forwarded-Host"); hostPattern.MatchString(named) {
			host = named
		}
		if named := strings.TrimSuffix(said("X-Forwarded-Prefix"), "/"); prefixPattern.MatchString(named) {
			prefix = named
		}
	}
	if !hostPattern.MatchString(host) {
		return prefix
	}
	return scheme + "://" + host + prefix
}

// headers are those of an answer with its addresses led back: all of Link (RFC 8288), Location and Content-Location, and whatever other header is
// an address and nothing else, such as Operation-Location.
func (b *wayBack) headers(h http.Header) http.Header {
	if b.base == nil {
		return h
	}
	led := make(http.Header, len(h))
	for name, values := range h {
		lead := b.absolute
		switch name {
		case "Link":
			lead = b.links
		case "Location", "Content-Location":
			lead = b.reference
		}
		led[name] = values
		for i, value := range values {
			if to := lead(value); to != value {
				led[name] = slices.Clone(led[name])
				led[name][i] = to
			}
		}
	}
	return led
}

// links leads back the targets in the value of a header Link.
func (b *wayBack) links(value string) string {
	var out strings.Builder
	for value != "" {
		start := strings.IndexByte(value, '<')
		end := strings.IndexByte(value, '>')
		if start < 0 || end < start || strings.Trim(value[:start], " \t,") != "" {
			break // it is no list of links: what is left stays
		}
		out.WriteString(value[:start+1])
		out.WriteString(b.reference(value[start+1 : end]))
		rest := endOfLink(value[end:])
		out.WriteString(value[end : end+rest])
		value = value[end+rest:]
	}
	return out.String() + value
}

// endOfLink is where the parameters of a link end: at a comma that is in no quotes.
func endOfLink(text string) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return i
		}
	}
	return len(text)
}

// absolute leads back a value that is an address with its scheme.
func (b *wayBack) absolute(value string) string {
	if !strings.HasPrefix(value, "http://") && !strings.HasPrefix(value, "https://") {
		return value
	}
	return b.reference(value)
}

// reference leads back an address, with or without its host. One without a leading slash is relative to the request: it leads to the proxy as it is.
// So does one to another host lead where it says.
func (b *wayBack) reference(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" && !strings.HasPrefix(u.Path, "/") || u.Host != "" && !b.isAtAPI(u) {
		return text
	}
	full := b.base.ResolveReference(u) // without the parts that climb
	if rest, below := strings.CutPrefix(full.EscapedPath(), b.path); below && (rest == "" || rest[0] == '/') && !climbs(rest) {
		to := b.own + rest
		if query := b.query(full.RawQuery); query != "" {
			to += "?" + query
		}
		if full.Fragment != "" {
			to += "#" + full.EscapedFragment()
		}
		return to
	}
	if u.Host == "" && strings.HasPrefix(full.Path, "/v1/") { // the client would call the API of this server
		return full.String()
	}
	return text
}

// isAtAPI reports whether an address is one of the API's host. One that only lacks its TLS is.
func (b *wayBack) isAtAPI(u *url.URL) bool {
	if u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || !strings.EqualFold(u.Hostname(), b.base.Hostname()) {
		return false
	}
	return portOf(u, b.base.Scheme) == portOf(b.base, "") || u.Port() == "" && b.base.Port() == ""
}

func portOf(u *url.URL, scheme string) string {
	switch scheme = cmp.Or(u.Scheme, scheme); {
	case u.Port() != "":
		return u.Port()
	case scheme == "https":
		return "443"
	}
	return "80"
}

// climbs reports whether a client may read a part of a path as one that climbs. Those that stand there as they are were resolved before.
func climbs(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if decoded := strings.NewReplacer("%2e", ".", "%2E", ".").Replace(part); decoded == "." || decoded == ".." {
			return true
		}
	}
	return strings.Contains(path, `\`)
}

// query is that of an address without what the base URL adds to each request, which may be a secret.
func (b *wayBack) query(text string) string {
	if b.base.RawQuery == "" {
		return text
	}
	pairs := strings.Split(text, "&")
	for added := range strings.SplitSeq(b.base.RawQuery, "&") {
		if i := slices.Index(pairs, added); i >= 0 {
			pairs = slices.Delete(pairs, i, i+1)
		}
	}
	return strings.Join(pairs, "&")
}
