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

// wayBack rewrites the API's addresses in response headers to the proxy, or to an LLM route. So a client that follows them is paced, and its key stays
// here. An address of the API's host outside of the base URL would bypass the proxy, and a client that follows it would send its key to the vendor: it
// is removed. Addresses of other hosts and in bodies stay as they are, except redirects that would carry the client's key.
type wayBack struct {
	base *url.URL // of the API; nil leads nothing back
	path string   // of it, without a slash at its end
	own  string   // the address of the proxy, as the client addressed it

	carriesKey bool // to another host, if the client follows a redirect
}

// wayBack returns the rewriter for a response to r. base is the URL below which the request went. path is the path of this server by which the client
// reaches the same URL. credentials are the headers, in lower case, in which a client sends its key, in addition to keyHeaders.
func (a *access) wayBack(r *http.Request, base, path string, credentials ...string) *wayBack {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return &wayBack{}
	}
	return &wayBack{
		base: u, path: strings.TrimSuffix(u.EscapedPath(), "/"), own: a.origin(r) + path, carriesKey: a.redirectsCarryKey(r.Header, credentials),
	}
}

var (
	hostPattern   = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]+$`)
	prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)
)

// origin returns the scheme and host by which the client has addressed this server. The headers of a proxy in front count if the proxy is trusted. A
// client's TLS counts in any case: otherwise its next request, with its key, might be sent unencrypted.
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

// headerDropped names the response headers that were removed because they would bypass the proxy.
const headerDropped = "Tundish-Dropped"

// pass passes on the headers of a response with its addresses rewritten: all of Link (RFC 8288), Location and Content-Location, and any other header
// that is only an address, such as Operation-Location.
func (b *wayBack) pass(to, answer http.Header, status int) {
	if b.base == nil {
		passHeaders(to, answer)
		return
	}
	led, dropped := make(http.Header, len(answer)), []string(nil)
	for name, values := range answer {
		lead := b.absolute
		switch {
		case name == "Link":
			lead = b.links
		case name == "Location" && status/100 == 3:
			lead = b.redirect
		case name == "Location", name == "Content-Location":
			lead = b.reference
		}
		isWhole := true
		for _, value := range values {
			value, stays := lead(value)
			if value != "" || stays {
				led[name] = append(led[name], value)
			}
			isWhole = isWhole && stays
		}
		if !isWhole {
			dropped = append(dropped, name)
		}
	}
	passHeaders(to, led)
	if slices.Sort(dropped); len(dropped) > 0 {
		to.Set(headerDropped, strings.Join(dropped, ", "))
	}
}

// redirect rewrites the address of a redirect, which clients follow by themselves: only if their key is not sent along.
func (b *wayBack) redirect(text string) (led string, stays bool) {
	led, stays = b.reference(text)
	if stays && led == text && b.leaksKey(text) {
		return "", false
	}
	return led, stays
}

// links rewrites the targets in the value of a header Link. stays is false if a link was removed.
func (b *wayBack) links(value string) (led string, stays bool) {
	var kept []string
	stays = true
	for value != "" {
		start := strings.IndexByte(value, '<')
		end := strings.IndexByte(value, '>')
		if start < 0 || end < start || strings.Trim(value[:start], " \t,") != "" {
			kept = append(kept, strings.TrimLeft(value, ",")) // it is no list of links: the rest stays
			break
		}
		rest := endOfLink(value[end:])
		if target, isLed := b.reference(value[start+1 : end]); isLed {
			kept = append(kept, strings.TrimLeft(value[:start], ",")+"<"+target+value[end:end+rest])
		} else {
			stays = false
		}
		value = value[end+rest:]
	}
	return strings.TrimLeft(strings.Join(kept, ","), " \t"), stays
}

// endOfLink returns the index where the parameters of a link end: at a comma outside of quotes.
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
func (b *wayBack) absolute(value string) (led string, stays bool) {
	if !strings.HasPrefix(value, "http://") && !strings.HasPrefix(value, "https://") {
		return value, true
	}
	return b.reference(value)
}

// reference rewrites an address, with or without its host. An address without a leading slash is relative to the request: it stays, as it leads to the
// proxy. An address of another host stays too. stays is false for an address that leads to the vendor past the proxy, or to this server's own API.
func (b *wayBack) reference(text string) (led string, stays bool) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" && !strings.HasPrefix(u.Path, "/") || u.Host != "" && !b.isAtVendor(u) {
		return text, true
	}
	full := b.base.ResolveReference(u) // without the parts that climb
	rest, below := strings.CutPrefix(full.EscapedPath(), b.path)
	if below && (u.Host == "" || b.isAtAPI(u)) && (rest == "" || rest[0] == '/') && !climbs(rest) {
		to := b.own + rest
		if query := b.query(full.RawQuery); query != "" {
			to += "?" + query
		}
		if full.Fragment != "" {
			to += "#" + full.EscapedFragment()
		}
		return to, true
	}
	isOfUs := u.Host == "" && strings.HasPrefix(full.Path, "/v1/") // the client would call the API of this server
	if u.Host != "" || isOfUs {
		return "", false
	}
	return text, true
}

// isAtVendor reports whether an address is one of the API's host, on any port.
func (b *wayBack) isAtVendor(u *url.URL) bool {
	return (u.Scheme == "" || u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), b.base.Hostname())
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

// climbs reports whether a client may read a part of a path as "..". Literal ones were resolved before.
func climbs(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if decoded := strings.NewReplacer("%2e", ".", "%2E", ".").Replace(part); decoded == "." || decoded == ".." {
			return true
		}
	}
	return strings.Contains(path, `\`)
}

// query returns an address's query without the part that the base URL adds to each request, which may be a secret.
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
