//go:build soak

package soak

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// busy counts who is being answered at a time.
type busy struct {
	hold time.Duration

	mu        sync.Mutex
	now, most int
	answered  int
	took      time.Duration
}

func (b *busy) respond(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
	began := time.Now()
	b.mu.Lock()
	b.now++
	b.most = max(b.most, b.now)
	b.mu.Unlock()
	timer := time.NewTimer(b.hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	b.mu.Lock()
	b.now--
	b.answered++
	b.took += time.Since(began)
	b.mu.Unlock()
}

// each is how long an answer took on average: timers of a busy machine ring late.
func (b *busy) each() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took / time.Duration(max(b.answered, 1))
}

func (b *busy) highest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// TestInFlightBound: as many are on their way as may be, never more, and what the
// bound allows is reached.
func TestInFlightBound(t *testing.T) {
	const bound, jobs = 10, 500
	harness.Quietly(t, func(t *testing.T, _ *harness.StallWatch) string {
		b := &busy{hold: 200 * time.Millisecond}
		s := start(t, redistest.Start(t), harness.Plan{Rate: 1000, Dispatchers: 2, MaxInFlight: bound, Respond: b.respond})
		s.Post("bound", jobs)
		r := s.AwaitDelivered(60 * time.Second)
		possible := bound / b.each().Seconds()
		t.Logf("%s; at most %d at a time, %.1f/s of %.1f/s", r, b.highest(), r.Rate, possible)
		if err := r.Err(); err != nil || b.highest() > bound {
			t.Fatalf("%d at a time, %v", b.highest(), err)
		}
		if r.Rate < .98*possible {
			return fmt.Sprintf("%.1f/s, want at least 98 %% of %.1f/s", r.Rate, possible)
		}
		return ""
	})
}

// TestInFlightBoundWhileProcessesDie: leases of the dead come back with their end, and
// never is there one more.
func TestInFlightBoundWhileProcessesDie(t *testing.T) {
	const bound, jobs = 10, 400
	b := &busy{hold: 200 * time.Millisecond}
	s := start(t, redistest.Start(t), harness.Plan{Rate: 1000, Dispatchers: 2, MaxInFlight: bound, Lease: 2 * time.Second, Respond: b.respond})
	s.Post("bound", jobs)
	deadline := time.Now().Add(90 * time.Second)
	for i := 0; s.History.Check().Delivered < jobs; i++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d arrived", s.History.Check().Delivered, jobs)
		}
		quietFor(t, time.Now(), 2*time.Second)
		s.Dispatchers[i%2].Kill()
		s.Dispatchers[i%2] = s.Restart[i%2]()
	}
	r := s.AwaitDelivered(60 * time.Second)
	t.Logf("%s; at most %d at a time", r, b.highest())
	if err := r.Err(); err != nil || b.highest() > bound {
		t.Fatalf("%d at a time, %v", b.highest(), err)
	}
}
