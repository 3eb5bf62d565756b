package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/redisconn"
)

// outage logs that Redis went and came back, once each, and remembers when one
// ended that was long enough for leases to run out with nobody dead.
type outage struct {
	log     *slog.Logger
	crowded sync.Once // of calls without a connection

	mu    sync.Mutex
	since time.Time
	long  time.Time // end of the last long one
	last  time.Time // when the last call was answered
}

// failed notes a call that began at an instant and failed. It is no outage that a call found no free connection while Redis answered others.
func (o *outage) failed(ctx context.Context, began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(err, redis.ErrPoolTimeout) && o.last.After(began) {
		o.crowded.Do(func() {
			o.log.WarnContext(ctx, "a call found no free connection to Redis and is sent again: raise redis.pool_size", "error", err)
		})
		return
	}
	if o.since.IsZero() && !errors.Is(err, context.Canceled) {
		o.since = time.Now()
		if redisconn.Unavailable(err) {
			o.log.ErrorContext(ctx, "redis does not answer: nothing is claimed until it does", "error", err)
		} else {
			o.log.ErrorContext(ctx, "nothing is claimed until this is put right", "error", err)
		}
	}
}

// worked notes a call that Redis answered. An outage is the time in which it was asked and answered no call: since the last answer, or
// since a call that failed or took long. A heartbeat that fails is made good by the next one, a third of
// a lease later: an outage shorter than that costs no lease.
func (o *outage) worked(ctx context.Context, began time.Time, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, last := time.Now(), o.last
	o.last = now
	if !o.since.IsZero() {
		o.log.InfoContext(ctx, "claims work again", "after", now.Sub(o.since).Round(time.Millisecond))
		if o.since.Before(began) {
			began = o.since
		}
		o.since = time.Time{}
	}
	if now.Sub(later(began, last)) > lease/3 {
		o.long = now
	}
}

// lastLong is when the last long outage ended, zero if there was none.
func (o *outage) lastLong() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.long
}

// workedSince reports whether a call was answered after then.
func (o *outage) workedSince(then time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last.After(then)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
