package dispatcher

import (
	"context"
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

// watch runs the ticker until ctx ends.
func (s *stall) watch(ctx context.Context) {
	s.note(time.Now())
	tick := time.NewTicker(s.limit / beatsInLimit)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.note(time.Now())
		}
	}
}

// note takes in that the process runs at an instant.
func (s *stall) note(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(now)
	s.beat = now
}

// see finds out whether there was a stall until an instant. The caller holds mu.
func (s *stall) see(now time.Time) {
	if !s.beat.IsZero() && now.Sub(s.beat) > s.limit {
		s.long = now
	}
}

// lastLong is when the last stall ended, zero if there was none. After a stall it may be asked before the ticker runs.
func (s *stall) lastLong() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(time.Now())
	return s.long
}
