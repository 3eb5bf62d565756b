package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/apikey"
)

// guard checks a request before its route is looked up.
//
// With keys it refuses requests that a web page of another origin sends. A gateway's check (isCheck) passes: it has the headers of the gateway's client,
// and a key that no web page has. [access.allow] checks the rights of the key, at the route.
//
// Without keys, only programs of this machine are trusted, and guard accepts only their requests to this machine. A check uses up the limit with any
// method, so [access.allow] also refuses a GET of another origin there.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why, keyless := "", len(a.ring()) == 0
		if keyless {
			why = a.notLocal(r)
		}
		if why == "" && a.foreign(r, r.Method) && (keyless || !isCheck(r)) {
			why = otherOrigin
		}
		if why != "" {
			a.refuse(why).write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allow serves a request whose key has the rights that the route needs. It responds with 401 to a request without a known key, and with 403 to a key
// without the rights.
func (a *access) allow(needs rights, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if name := r.PathValue("bucket"); name != "" && a.currentName != nil && !needs.clientKey { // a route of the proxy may have that name
			r.SetPathValue("bucket", a.currentName(name))
		}
		if needs.clientKey && a.foreign(r, http.MethodPost) { // the proxy: a GET uses the API with its credentials
			a.refuse(otherOrigin).write(w, r)
			return
		}
		switch ring := a.ring(); {
		case len(ring) == 0 || needs.local:
			// The guard has checked this if there are no keys, but there may have been keys then.
			why := a.notLocal(r)
			if why == "" && slices.Contains(needs.roles, apikey.RoleCheck) && a.foreign(r, http.MethodPost) {
				// A check spends with any method, so that the guard's exception for GET does not hold.
				why = otherOrigin
			}
			if why != "" {
				a.refuse(why).write(w, r)
				return
			}
		case needs.roles != nil:
			find := authenticate
			if needs.clientKey {
				find = authenticateClient
			}
			key, f := visitor(r).Key, (*fault)(nil)
			if key == nil {
				if key, f = find(ring, w, r); key == nil && showsKey(r, needs) {
					a.refusals.noteWrong(a.address(r))
				}
			}
			bucket := r.PathValue("bucket")
			if needs.anyBucket {
				bucket = ""
			}
			if f != nil {
				f.write(w, r)
				return
			}
			r = r.WithContext(context.WithValue(context.WithValue(r.Context(), keyContext{}, key), accessContext{}, a))
			if f = authorize(key, needs, bucket); f != nil {
				f.write(w, r)
				return
			}
		}
		serve(w, r)
	}
}

// showsKey reports whether a request has a possible key, for a route with these needs.
func showsKey(r *http.Request, needs rights) bool {
	names := keyHeaders
	if !needs.clientKey {
		names = []string{"Authorization"}
	}
	return slices.ContainsFunc(names, func(name string) bool { return r.Header.Get(name) != "" })
}
