package httpapi

import (
	"net/http"
	"strings"
)

// deprecatedSince is the date at which the deprecated paths were replaced, as a date of structured fields (RFC 9745): 2026-11-27.
const deprecatedSince = "@1795737600"

// deprecated serves a path that the next version does not have, and names the one to use.
func deprecated(successor string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		target := strings.ReplaceAll(successor, "{bucket}", r.PathValue("bucket"))
		if r.URL.RawQuery != "" {
			target += "?" + r.URL.RawQuery
		}
		w.Header().Set("Deprecation", deprecatedSince)
		w.Header().Set("Link", "<"+target+`>; rel="successor-version"`)
		serve(w, r)
	}
}
