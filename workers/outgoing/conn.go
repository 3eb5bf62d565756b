package outgoing

import (
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// The health checks of HTTP/2 connections. A connection that is silent for longer than maxSilence has not answered a PING: it gets no new request. It is
// closed only after pingTimeout, because a receiver that pauses may still answer its requests.
const (
	pingAfter   = 2 * time.Second // of silence
	maxSilence  = pingAfter + time.Second
	pingTimeout = 15 * time.Second
)

// idleTimeout is how long an unused connection is kept.
const idleTimeout = 30 * time.Second

// conn is a connection of a pool.
type conn struct {
	*http.ClientConn
	origin  shaper.Origin
	wire    *wire
	isHTTP2 bool
	expires time.Time // it gets no request from then on; zero: never

	hasResponded atomic.Bool // to a request
	hasFaulted   atomic.Bool // it failed its requests, and one of them reports that

	// Guarded by pool.mu.
	users   int // deliveries that hold it
	listed  bool
	retired bool        // gets no more requests
	isUsed  bool        // it has carried a request
	idle    *time.Timer // closes it; nil before the first rest
}

// expiry returns when a connection that is made now expires. It is up to 10 % earlier than maxAge, so that connections that were made together do not
// all end together.
func expiry(maxAge time.Duration) time.Time {
	if maxAge <= 0 {
		return time.Time{}
	}
	return time.Now().Add(maxAge - time.Duration(rand.Int64N(int64(maxAge)/10+1))) //nolint:gosec // jitter
}

// isOld reports whether the connection has expired.
func (c *conn) isOld() bool { return !c.expires.IsZero() && time.Until(c.expires) <= 0 }

// isSilent reports whether the receiver has not answered a PING for longer than maxSilence. An HTTP/1 connection is never silent.
func (c *conn) isSilent() bool { return c.isHTTP2 && c.wire.silence() > maxSilence }

// isAtFault reports whether a request failed with its connection of HTTP/2, which ended or was silent since the request was sent.
func (c *conn) isAtFault(sent time.Duration) bool {
	return c.isHTTP2 && (c.Err() != nil || c.wire.lastRead() < sent)
}

// restFor returns how long the connection is kept while it rests. pool.mu is held.
func (c *conn) restFor() time.Duration {
	if c.expires.IsZero() {
		return c.keepFor()
	}
	return min(c.keepFor(), max(0, time.Until(c.expires)))
}
