package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/tundish-io/tundish/internal/apikey"
)

// errRevoked is the cause for which the context of a lasting request ends.
var errRevoked = errors.New("the key of the request is not known any more, or has fewer rights")

// lasting are the requests under way that last: streams and waits. Each ends when its key leaves the configuration or loses a right. It is safe for
// concurrent use.
type lasting struct {
	mu   sync.Mutex
	live map[*lastingRequest]struct{}
}

type lastingRequest struct {
	key *apikey.Key
	end context.CancelCauseFunc
}

// lasts returns the request with a context that ends with the rights of its key, and a function that its handler calls at its end.
func (a *access) lasts(r *http.Request) (*http.Request, func()) {
	ctx, end := context.WithCancelCause(r.Context())
	one := &lastingRequest{keyOf(r), end}
	l := &a.lasting
	l.mu.Lock()
	if l.live == nil {
		l.live = map[*lastingRequest]struct{}{}
	}
	l.live[one] = struct{}{}
	l.mu.Unlock()
	a.endRevoked() // the keys may have changed since the request was let in
	return r.WithContext(ctx), func() {
		l.mu.Lock()
		delete(l.live, one)
		l.mu.Unlock()
		end(nil)
	}
}

// endRevoked ends the requests whose keys do not grant them any more.
func (a *access) endRevoked() {
	ring := a.ring()
	a.lasting.mu.Lock()
	defer a.lasting.mu.Unlock()
	for one := range a.lasting.live {
		if one.key == nil && len(ring) > 0 || one.key != nil && !ring.Grants(one.key) {
			one.end(errRevoked)
		}
	}
}

// isRevoked reports whether a lasting request has ended with the rights of its key.
func isRevoked(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errRevoked) }
