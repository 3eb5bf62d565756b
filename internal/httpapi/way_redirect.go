package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// droppedElsewhere are the headers that clients drop when they follow a redirect to another host.
var droppedElsewhere = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// redirectsCarryKey reports whether a client with these headers sends a key to another host when it follows a redirect. credentials are further headers,
// in lower case, that hold a key.
func (a *access) redirectsCarryKey(h http.Header, credentials []string) bool {
	ring := a.ring()
	for name, values := range h {
		switch {
		case slices.Contains(droppedElsewhere, name):
		case slices.Contains(keyHeaders, name), slices.Contains(credentials, strings.ToLower(name)),
			slices.ContainsFunc(values, func(value string) bool { return keyIn(ring, value) != nil }):
			return true
		}
	}
	return false
}

// leaksKey reports whether a client that follows a redirect to an address which is not led back sends its key along: to another host, if the key is in
// a header that clients keep; and to another port of this server's host always, as clients of Go send even their Authorization there.
func (b *wayBack) leaksKey(text string) bool {
	return !staysHere(text) && (b.carriesKey || b.isAtThisHost(text))
}

// staysHere reports whether every client reads an address as one of the requested host. Clients that follow the URL standard of browsers, as fetch does,
// read "\\" as "/", and find a host after any number of slashes.
func staysHere(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "" && u.Host == "" && u.Opaque == "" && !strings.HasPrefix(text, "//") && !strings.ContainsAny(text, "\\\t")
}

// isAtThisHost reports whether an address is one of this server's host, or of a host below it.
func (b *wayBack) isAtThisHost(text string) bool {
	u, err := url.Parse(text)
	own, ownErr := url.Parse(b.own)
	if err != nil || ownErr != nil || own.Hostname() == "" {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return host == strings.ToLower(own.Hostname()) || strings.HasSuffix(host, "."+strings.ToLower(own.Hostname()))
}
