package httpapi

import (
	"net/http"
	"strings"
)

// isOurs reports whether a header of an answer is this server's: what the API says in it would be taken for ours. An API that lets web
// pages of any origin read its answers says so of itself, not of this server.
func isOurs(name string) bool {
	return name == "X-Request-Id" || name == "X-Content-Type-Options" || strings.HasPrefix(name, "Tundish-") || strings.HasPrefix(name, "Access-Control-")
}

// ofConnection are headers of one connection only (RFC 9110, 7.6.1), or that each hop writes.
var ofConnection = []string{
	"Connection", "Content-Length", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// endToEnd are headers without those of the connection, which it may name itself.
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

// keptHere are headers that are for this server, or that name its client.
var keptHere = append([]string{"Cookie", "Forwarded", "Via", "X-Real-Ip", "Prefer", "Traceparent", "Tracestate"}, keyHeaders...)

// forwarded are the headers that go to the API.
func forwarded(h http.Header, credentials []string) map[string][]string {
	kept := endToEnd(h)
	for _, name := range keptHere {
		kept.Del(name)
	}
	for _, name := range credentials {
		kept.Del(name)
	}
	for name := range kept {
		if strings.HasPrefix(name, "Tundish-") || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Sec-Fetch-") {
			delete(kept, name)
		}
	}
	return kept
}
