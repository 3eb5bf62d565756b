package httpapi

import "net/http"

type requestIDKey struct{}

// requestID returns the id of the request, for responses and logs.
func requestID(r *http.Request) string {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	return id
}
