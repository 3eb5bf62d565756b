package httpapi

import "net/http"

type requestIDKey struct{}

// requestID is the id of the request, for answers and logs.
func requestID(r *http.Request) string {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	return id
}
