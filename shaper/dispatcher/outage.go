package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

// outage logs once that Redis went down, and once that it is back. It remembers the end of the last outage that was long enough for leases to expire
// without a crash.
type outage struct {
	log     *slog.Logger
	crowded sync.Once // logs calls that found no connection

	mu      sync.Mutex
	since   time.Time
	refuses bool      // since then Redis has refused a script, so replies to reads do not end the outage
	long    time.Time // end of the last long outage
	last    time.Time // when the last call was answered
}

// failed records a script that began at an instant and failed. If Redis answered other calls meanwhile, a call without a free connection is no
// outage.
func (o *outage) failed(ctx context.Context, began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuses = o.refuses || isResponse(err)
	o.begin(ctx, began, err)
}

// lookFailed is like failed, for a command that only reads.
func (o *outage) lookFailed(ctx context.Context, began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin(ctx, began, err)
}

func isResponse(err error) bool {
	var response redis.Error
	return errors.As(err, &response)
}

// begin logs the start of an outage. The caller holds mu.
func (o *outage) begin(ctx context.Context, began time.Time, err error) {
	if errors.Is(err, redis.ErrPoolTimeout) && o.last.After(began) {
		o.crowded.Do(func() {
			o.log.WarnContext(ctx, "a call found no free connection to Redis and is sent again: raise redis.pool_size", "error", err)
		})
		return
	}
	if o.since.IsZero() && !errors.Is(err, context.Canceled) {
		o.since = time.Now()
		switch redisconn.FailureOf(err) {
		case redisconn.Forbidden:
			o.log.ErrorContext(ctx, "redis refuses the user or the password: nothing is claimed until redis.password and the user's rights are right", "error", err)
		case redisconn.Full:
			o.log.ErrorContext(ctx, "redis is out of memory: nothing is claimed until it has room; raise maxmemory, or purge jobs", "error", err)
		case redisconn.Refused:
			o.log.ErrorContext(ctx, "redis refuses commands, as a replica does, or a server that loads its data: nothing is claimed until it accepts them", "error", err)
		case redisconn.NoFailure:
			o.log.ErrorContext(ctx, "nothing is claimed until this is put right", "error", err)
		default:
			o.log.ErrorContext(ctx, "redis does not answer: nothing is claimed until it does", "error", err)
		}
	}
}

// looked records a successful command that only reads. It does not end an outage while Redis refuses scripts: a replica answers reads, and accepts
// no job.
func (o *outage) looked(ctx context.Context, began time.Time, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || !o.refuses {
		o.answered(ctx, began, lease)
	}
}

// worked records a script that Redis ran. An outage is the time without any answered call: since the last answer, or since a call that failed or took
// long. A failed heartbeat is repeated a third of a lease later, so an outage shorter than that costs no lease.
func (o *outage) worked(ctx context.Context, began time.Time, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered(ctx, began, lease)
}

// answered records an answered call. The caller holds mu.
func (o *outage) answered(ctx context.Context, began time.Time, lease time.Duration) {
	now, last := time.Now(), o.last
	o.last = now
	if !o.since.IsZero() {
		o.log.InfoContext(ctx, "claims work again", "after", now.Sub(o.since).Round(time.Millisecond))
		if o.since.Before(began) {
			began = o.since
		}
		o.since, o.refuses = time.Time{}, false
	}
	if now.Sub(later(began, last)) > lease/3 {
		o.long = now
	}
}

// lastLong returns when the last long outage ended, zero if there was none.
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

// elsewhere logs once that a bucket is in another pool than this process's configuration says, and once that it is back. This is no outage of Redis
// or of other buckets.
type elsewhere struct {
	why   string
	moves bool // it is moving, and that was logged
}

// logIfMoved reports whether err says that the bucket is elsewhere, and logs it.
func (e *elsewhere) logIfMoved(ctx context.Context, log *slog.Logger, err error) bool {
	moves := errors.Is(err, shaper.ErrMoves)
	if !moves && !errors.Is(err, shaper.ErrTagChanged) {
		return false
	}
	if moves {
		if !e.moves {
			log.InfoContext(ctx, "the bucket moves to the pool that this configuration says; it sends nothing until its deliveries under way have ended", "state", err.Error())
		}
		e.moves = true
		return true
	}
	e.moves = false
	if why := err.Error(); e.why != why {
		e.why = why
		log.ErrorContext(ctx, "the dispatcher claims nothing of this bucket until it is in the pool that this configuration says", "error", err)
	}
	return true
}

func (e *elsewhere) back(ctx context.Context, log *slog.Logger) {
	if e.why != "" || e.moves {
		e.why, e.moves = "", false
		log.InfoContext(ctx, "the bucket is in the pool that this configuration says")
	}
}

// stall detects that this process stalled: it was stopped, the machine slept, or its CPUs were busy. A ticker is late then. Leases of this process
// may have expired meanwhile, without a crash.
type stall struct {
	limit time.Duration // the shortest stall that counts

	mu       sync.Mutex
	lastTick time.Time // the last tick; zero before the first one
	long     time.Time // end of the last stall
}

// ticksInLimit is the number of ticks in the shortest stall that counts.
const ticksInLimit = 4

// watch runs the ticker until ctx ends, and logs each stall.
func (s *stall) watch(ctx context.Context, log *slog.Logger) {
	s.note(time.Now())
	tick := time.NewTicker(s.limit / ticksInLimit)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if still := s.note(time.Now()); still > 0 {
				log.WarnContext(ctx, "this process stood still: it was stopped, or its machine had no time for it; what failed meanwhile may have no other cause",
					"for", still.Round(time.Millisecond))
			}
		}
	}
}

// note records that the process runs at an instant, and returns how long it had stalled; 0 if it had not.
func (s *stall) note(now time.Time) (still time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.see(now) {
		still = now.Sub(s.lastTick)
	}
	s.lastTick = now
	return still
}

// see reports whether the process had stalled before an instant. The caller holds mu.
func (s *stall) see(now time.Time) bool {
	was := !s.lastTick.IsZero() && now.Sub(s.lastTick) > s.limit
	if was {
		s.long = now
	}
	return was
}

// lastLong returns when the last stall ended, zero if there was none. It detects a stall even before the ticker runs.
func (s *stall) lastLong() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(time.Now())
	return s.long
}
