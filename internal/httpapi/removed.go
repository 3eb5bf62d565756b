package httpapi

import (
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// removedAddresses maps the addresses that were removed before 0.1.0 to the paths that replaced them. The groups "flow" and "group" of a pattern are
// parameters of the new query.
var removedAddresses = []struct {
	address *regexp.Regexp
	now     string
}{
	{removedBelow(`/groups/(?P<group>[^/]*)/flows/(?P<flow>.*?)`), "${bucket}/flow${operation}"},
	{removedBelow(`/flows/(?P<flow>.*?)`), "${bucket}/flow${operation}"},
	{removedBelow(`/groups/(?P<group>.*?)`), "${bucket}/group${operation}"},
	{removedBelow(`/flow-settings`), "${bucket}/flow"},
	{removedBelow(`/group-settings`), "${bucket}/group"},
}

// removedBelow compiles the pattern of an address below a bucket, with or without an operation at its end.
func removedBelow(address string) *regexp.Regexp {
	return regexp.MustCompile(`^(?P<bucket>/v1/buckets/[^/]+)` + address + `(?P<operation>/(?:pause|resume|purge|release|enable|all))?$`)
}

// newAddress returns the address that replaced the address of r, with the query of r, or "" if none did.
func newAddress(r *http.Request) string {
	escaped := r.URL.EscapedPath()
	for _, removed := range removedAddresses {
		found := removed.address.FindStringSubmatchIndex(escaped)
		if found == nil {
			continue
		}
		query := r.URL.Query()
		for i, name := range removed.address.SubexpNames() {
			if name != "flow" && name != "group" {
				continue
			}
			if text, err := url.PathUnescape(escaped[found[2*i]:found[2*i+1]]); err == nil {
				query.Set(name, text)
			}
		}
		return string(removed.address.ExpandString(nil, removed.now, escaped, found)) + "?" + query.Encode()
	}
	return ""
}

// isClean reports whether http.ServeMux serves a path of the API as it is. It redirects any other path, and the new path may be of another object:
// /flows/../pause becomes the bucket's /pause.
func isClean(escaped string) bool {
	return !strings.HasPrefix(escaped, "/v1/") || path.Clean(escaped) == strings.TrimSuffix(escaped, "/")
}
