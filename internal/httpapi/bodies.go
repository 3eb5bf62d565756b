package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"golang.org/x/sync/semaphore"
)

// Bounds of the memory for the bodies of all requests together.
const (
	DefaultBodyMemory = 64 << 20
	MinBodyMemory     = 16 << 20 // room for any one request

	firstRead = 4 << 10
)

// errBodyMemory says that the bodies of other requests fill the memory that is for them.
var errBodyMemory = errors.New("the bodies of other requests take all the memory that is for them")

// bodies bounds the bytes of request bodies that are in memory at a time.
type bodies struct{ free *semaphore.Weighted }

// newBodies makes room for limit bytes; 0 means DefaultBodyMemory.
func newBodies(limit int64) bodies {
	if limit <= 0 {
		limit = DefaultBodyMemory
	}
	return bodies{semaphore.NewWeighted(limit)}
}

// bound gives each request a share of the memory, from which readBody takes, until it is answered.
func (b bodies) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := &bodyShare{of: b.free}
		defer share.release()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bodyShareKey{}, share)))
	})
}

type bodyShareKey struct{}

// bodyShare is the memory that the body of one request takes.
type bodyShare struct {
	of   *semaphore.Weighted
	held int64
}

func (s *bodyShare) release() {
	s.of.Release(s.held)
	s.held = 0
}

// releaseBody gives back the memory of a request's body before the request is answered: it is not needed any more.
func releaseBody(r *http.Request) {
	if share, ok := r.Context().Value(bodyShareKey{}).(*bodyShare); ok {
		share.release()
	}
}

// read reads a body, of size bytes or, where that is negative, to its end. It takes memory as
// the bytes arrive: to announce a large body and send nothing takes none from the others.
func (s *bodyShare) read(from io.Reader, size int64) ([]byte, error) {
	var body []byte
	for {
		if int64(len(body)) == size {
			return body, nil
		}
		if len(body) == cap(body) {
			room := max(firstRead, 2*int64(cap(body)))
			if size >= 0 {
				room = min(room, size)
			}
			more := room - int64(cap(body))
			if !s.of.TryAcquire(more) {
				return nil, errBodyMemory
			}
			s.held += more
			body = append(make([]byte, 0, room), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF) && size > int64(len(body)):
			return nil, io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}
