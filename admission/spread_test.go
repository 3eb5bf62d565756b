package admission

import (
	"testing"
	"time"
)

// served is how many clients a key serves at once, and how many of those that come are refused.
type served struct{ level, perSecond, most float64 }

func (s *served) take() bool {
	if s.level < 1 {
		return false
	}
	s.level--
	return true
}

// crowd has clients come at once and obey the Retry-After that they get, in whole seconds. It returns the refusals, and after how
// many seconds the last one was admitted.
func crowd(clients int, perSecond, burst float64, retry func(wait time.Duration, now time.Time) time.Duration) (refusals, seconds int) {
	s := served{burst, perSecond, burst}
	start := time.Unix(0, 0)
	due := map[int]int{0: clients}
	for second := 0; clients > 0; second++ {
		now := start.Add(time.Duration(second) * time.Second)
		for range due[second] {
			if s.take() {
				clients, seconds = clients-1, second
				continue
			}
			refusals++
			wait := time.Duration((1 - s.level) / perSecond * float64(time.Second))
			due[second+int(RetrySeconds(retry(wait, now)))]++
		}
		s.level = min(s.level+s.perSecond, s.most)
	}
	return refusals, seconds
}

// TestSpread has 200 clients refused at one instant by a limit of 10/s. Without different times to return 7.9 of 8.9 tries were in vain.
func TestSpread(t *testing.T) {
	t.Parallel()
	together, _ := crowd(200, 10, 10, func(wait time.Duration, _ time.Time) time.Duration { return wait })
	var s Spread
	apart, seconds := crowd(200, 10, 10, func(wait time.Duration, now time.Time) time.Duration {
		return wait + s.Delay("key", wait, time.Second/10, now)
	})
	t.Logf("refusals per admitted client: together %.2f, apart %.2f; all were admitted after %d s", float64(together)/200, float64(apart)/200, seconds)
	if together < 7*200 {
		t.Errorf("together %d refusals: the crowd is none", together)
	}
	if apart > 200*3/2 {
		t.Errorf("apart %d refusals for 200 clients: want at most 1.5 per client", apart)
	}
	if seconds > 20+2 {
		t.Errorf("the last one was admitted after %d s: the limit could serve all in 20 s", seconds)
	}
}

// TestSpreadAlone: a client that obeys, and is alone, gets no delay, whatever was before.
func TestSpreadAlone(t *testing.T) {
	t.Parallel()
	var s Spread
	now := time.Unix(0, 0)
	for range 5 {
		if delay := s.Delay("key", time.Second, 10*time.Second, now); delay != 0 {
			t.Fatalf("delay %s for a client that is alone", delay)
		}
		now = now.Add(time.Second)
	}
	for range 100 {
		s.Delay("key", time.Second, 10*time.Second, now)
	}
	if delay := s.Delay("key", time.Second, 10*time.Second, now); delay != MaxSpread {
		t.Errorf("delay %s behind 100 others: want %s", delay, MaxSpread)
	}
	if delay := s.Delay("other", time.Second, 10*time.Second, now); delay != 0 {
		t.Errorf("delay %s of another key", delay)
	}
	if delay := s.Delay("key", time.Second, 0, now); delay != 0 {
		t.Errorf("delay %s without an interval", delay)
	}
}
