package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// stall notices that this process stood still: it was stopped, the machine slept, or its processors were busy with something else.
// A ticker runs late then. Leases of this process may have run out meanwhile, with nobody dead.
type stall struct {
	limit time.Duration // what counts

	mu   sync.Mutex
	beat time.Time // of the ticker; zero before the first one
	long time.Time // end of the last stall
}

// beatsInLimit is how often the ticker runs in the shortest stall that counts.
const beatsInLimit = 4

// watch runs the ticker until ctx ends, and logs each stall.
func (s *stall) watch(ctx context.Context, log *slog.Logger) {
	s.note(time.Now())
	tick := time.NewTicker(s.limit / beatsInLimit)
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

// note takes in that the process runs at an instant, and returns for how long it stood still before; 0 if it did not.
func (s *stall) note(now time.Time) (still time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.see(now) {
		still = now.Sub(s.beat)
	}
	s.beat = now
	return still
}

// see finds out whether there was a stall until an instant. The caller holds mu.
func (s *stall) see(now time.Time) bool {
	was := !s.beat.IsZero() && now.Sub(s.beat) > s.limit
	if was {
		s.long = now
	}
	return was
}

// lastLong is when the last stall ended, zero if there was none. After a stall it may be asked before the ticker runs.
func (s *stall) lastLong() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(time.Now())
	return s.long
}
