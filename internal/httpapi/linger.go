package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// How much of a refused body is read after its response.
const (
	lingerTime  = readTimeout // as long as a body that is accepted
	lingerBytes = 64 << 20    // twice the largest body

	// lingerAtStop is how long a connection lingers while the server stops.
	lingerAtStop = unreadTime
)

// lingering sends the response to a request whose body next did not read to its end, and then reads and drops the rest, as lingering_close of nginx
// does. Many clients send the whole body before they read. If the connection closed first, the client's next write would fail with a reset, and the
// client would report that instead of the response.
//
// A connection lingers for lingerTime and lingerBytes at most. By then its request has returned its place and the memory of its body, so that
// [connections] counts it as idle: a new connection replaces it. A stop ends it within lingerAtStop.
func lingering(stop *draining, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.ProtoMajor != 1 { // HTTP/2 resets the stream alone
			next.ServeHTTP(w, r)
			return
		}
		body := &followedBody{ReadCloser: r.Body}
		followed := r.WithContext(r.Context()) // the server of net/http checks the type of its own body
		followed.Body = body
		next.ServeHTTP(w, followed)
		if !body.ended && w.Header().Get("Content-Length") != "" { // without a length the client would wait for the end of the response
			linger(w, body.ReadCloser, stop.ends)
		}
	})
}

// linger discards the rest of a body, until a bound is reached or stop is done. The client may close first: it has its response.
func linger(w http.ResponseWriter, body io.Reader, stop context.Context) {
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	setReadDeadline(w, lingerTime)
	defer context.AfterFunc(stop, func() { setReadDeadline(w, lingerAtStop) })()
	_, _ = io.CopyN(io.Discard, body, lingerBytes)
}

// followedBody is a body that knows whether it was read to its end.
type followedBody struct {
	io.ReadCloser

	ended bool
}

func (b *followedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}
