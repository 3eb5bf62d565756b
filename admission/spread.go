package admission

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Bounds of a [Spread].
const (
	maxSpreadKeys = 16_384

	// MaxSpread is the most by which a [Spread] delays the return of a client. A client that ignores Retry-After fills the
	// line with its own places, and delays the others that share its limit by no more than this.
	MaxSpread = 30 * time.Second
)

// Spread gives refused clients different times to retry. Without it, all clients that were refused at one instant retry at one instant, and all but
// one are refused again: the number of refusals grows with the square of the number of clients.
//
// Each key has a line. A refused client gets the place after the previous one, one interval later, and the key serves one client per interval. A place whose time
// has passed is removed. So a lone client gets no delay.
//
// A Spread counts the refusals of one process and asks Redis nothing. It is safe for concurrent use. The zero value is ready. A key takes about 150
// bytes; the least recently used keys are dropped first.
type Spread struct {
	mu   sync.Mutex
	last *lru.Cache[string, time.Time] // key -> the latest place
}

// Delay returns the extra delay, from 0 to [MaxSpread], that a refused client should add to wait. interval is the time in which the key serves
// one such client; with 0 there is no delay.
func (s *Spread) Delay(key string, wait, interval time.Duration, now time.Time) time.Duration {
	if interval <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last, _ = lru.New[string, time.Time](maxSpreadKeys) // fails for sizes below 1 only
	}
	earliest := now.Add(wait)
	place := earliest
	if last, ok := s.last.Get(key); ok && last.After(now) {
		place = last.Add(interval)
	}
	delay := min(max(place.Sub(earliest), 0), MaxSpread)
	s.last.Add(key, earliest.Add(delay))
	return delay
}
