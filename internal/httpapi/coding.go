package httpapi

import (
	"net/http"
	"strings"
)

// TakesGzip reports whether a client accepts gzip, with any weight except 0.
func TakesGzip(accepted string) bool {
	for coding := range strings.SplitSeq(accepted, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.TrimSpace(name) == "gzip" {
			return !strings.HasPrefix(strings.ReplaceAll(weight, " ", ""), "q=0") || strings.ContainsAny(weight, "123456789")
		}
	}
	return false
}

// narrowCoding removes all codings but gzip from those that a proxy client accepts: a dispatcher parses a response to judge it, and decodes no other.
func narrowCoding(h http.Header) {
	accepted := strings.Join(h.Values("Accept-Encoding"), ",")
	h.Del("Accept-Encoding")
	if TakesGzip(accepted) {
		h.Set("Accept-Encoding", "gzip")
	}
}
