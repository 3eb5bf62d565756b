package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// proxied is the target of a client's request: a path and a query below the base URL of the bucket, as they were spelled.
type proxied struct{ bucket, address string }

type proxiedKey struct{}

// addressOf returns the path and query of the API, below its base URL.
func addressOf(r *http.Request) string {
	asked, _ := r.Context().Value(proxiedKey{}).(proxied)
	return asked.address
}

// passHeaders passes on the headers of an API response.
func passHeaders(h, answer http.Header) {
	h.Del("Cache-Control") // the API's counts
	for name, values := range endToEnd(answer) {
		if !isOurs(name) {
			h[name] = values
		}
	}
	h.Add("Content-Security-Policy", "sandbox") // in addition to the API's: a browser obeys all of them
	if h.Get("Content-Type") == "" {
		h["Content-Type"] = nil // net/http would guess one
	}
}

// nameWait sets the wait of a refusal without one, such as the refusal of a paused bucket: the time that the client would have waited.
func nameWait(refusal *shaper.Refusal, timeout time.Duration) {
	if refusal.Reason == shaper.ReasonWaitTooLong && refusal.RetryAfter == 0 {
		refusal.RetryAfter = timeout
	}
}

// isOurs reports whether only this server may set a response header: the client would take the API's value for this server's. An API that lets web pages
// of any origin read its responses grants that for itself, not for this server. A cookie of the API would be set for this host, and would never go back.
func isOurs(name string) bool {
	return name == "X-Request-Id" || name == "X-Content-Type-Options" || name == "Set-Cookie" || strings.HasPrefix(name, "Tundish-") || strings.HasPrefix(name, "Access-Control-")
}

// ofConnection are headers of one connection only (RFC 9110, 7.6.1), or that each hop writes.
var ofConnection = []string{
	"Connection", "Content-Length", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// endToEnd returns the headers without the headers of the connection, which include the ones that Connection names.
func endToEnd(h http.Header) http.Header {
	kept := h.Clone()
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			kept.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range ofConnection {
		kept.Del(name)
	}
	for name := range kept {
		if strings.HasPrefix(name, "Proxy-") {
			delete(kept, name)
		}
	}
	return kept
}

// keptHere are headers for this server, or headers that name its client.
var keptHere = append([]string{"Cookie", "Forwarded", "Via", "X-Real-Ip", "Prefer", "Traceparent", "Tracestate"}, keyHeaders...)

// forwarded returns the headers that go to the API. It removes keys of this server from all of them.
func (a *access) forwarded(h http.Header, credentials []string) map[string][]string {
	kept := endToEnd(h)
	narrowCoding(kept)
	for _, name := range keptHere {
		kept.Del(name)
	}
	for _, name := range credentials {
		kept.Del(name)
	}
	for name, values := range kept {
		if strings.HasPrefix(name, "Tundish-") || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Sec-Fetch-") ||
			slices.ContainsFunc(values, func(value string) bool { return keyIn(a.ring(), value) != nil }) {
			delete(kept, name)
		}
	}
	return kept
}

// withoutKeys returns the address without the query parameters that are keys of this server.
func (a *access) withoutKeys(address string) string {
	path, query, hasQuery := strings.Cut(address, "?")
	if !hasQuery || len(a.ring()) == 0 {
		return address
	}
	pairs := strings.Split(query, "&")
	kept := slices.DeleteFunc(slices.Clone(pairs), func(pair string) bool {
		_, value, _ := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(value)
		return err == nil && keyIn(a.ring(), decoded) != nil
	})
	if len(kept) == len(pairs) {
		return address
	}
	if len(kept) == 0 {
		return path
	}
	return path + "?" + strings.Join(kept, "&")
}
