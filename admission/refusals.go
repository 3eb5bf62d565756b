package admission

import (
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Bounds of the memory of refusals.
const (
	maxRefusals = 16_384
	// forgetAfter is how long a refusal is repeated before Redis is asked again. A limit that another process raised is noticed within this time.
	forgetAfter = time.Second
)

// refusals remembers refused callers, so that Redis gets no question whose answer is known: until the Retry-After of a refusal ends, the answer would
// be the same.
//
// It refuses no request that Redis would admit, as long as Redis keeps the state and its clock does not step forward. The time is counted by the
// monotonic clock of this process, from the start of the call: no later than the instant at which Redis decided. A cost below the refused one is not
// refused. The wait of the caller is counted from the end of the call, so that it is never too short. A key takes about 300 bytes. The least recently
// used keys are dropped first.
type refusals struct {
	of   *lru.Cache[string, refusal]
	some *atomic.Bool // there was one
}

type refusal struct {
	limit   *compiledLimit
	cost    int64
	until   time.Time // until then the same answer holds
	retryAt time.Time // when the caller may retry, at the latest
	d       Decision
}

func newRefusals() refusals {
	of, _ := lru.New[string, refusal](maxRefusals) // fails for sizes below 1 only
	return refusals{of, new(atomic.Bool)}
}

// remember notes the answer to a call that began at start.
func (r refusals) remember(f *compiledLimit, key string, cost int64, start time.Time, d Decision) {
	d.Source = FromMemory
	r.of.Add(key, refusal{
		limit: f, cost: cost, d: d, retryAt: time.Now().Add(d.RetryAfter),
		until: start.Add(min(d.RetryAfter, forgetAfter)),
	})
	r.some.Store(true)
}

// forget removes the refusal of a key after a request was admitted: its caller now has to wait longer than the refusal said.
func (r refusals) forget(key string) {
	if r.some.Load() && r.of.Contains(key) {
		r.of.Remove(key)
	}
}

// recall returns the refusal of a key, if it is known to hold.
func (r refusals) recall(f *compiledLimit, key string, cost int64, now time.Time) (Decision, bool) {
	if !r.some.Load() {
		return Decision{}, false
	}
	known, ok := r.of.Get(key)
	if !ok || known.limit != f || !now.Before(known.until) {
		return Decision{}, false
	}
	more, ok := f.longer(known.cost, cost)
	if !ok {
		return Decision{}, false
	}
	d := known.d.Later(known.d.RetryAfter - known.retryAt.Sub(now))
	d.RetryAfter += more
	d.ResetAfter = max(d.ResetAfter, d.RetryAfter)
	return d, true
}

// longer returns how much longer a question waits than one of a refused cost, and whether
// that is known without asking. The same cost waits no longer. In a fixed window no cost does,
// because its end frees everything. In a token bucket the difference of the costs has to refill.
func (f *compiledLimit) longer(refused, cost int64) (time.Duration, bool) {
	switch {
	case cost == refused:
		return 0, true
	case cost < refused || cost > f.quota:
		return 0, false
	case f.Algorithm == FixedWindow:
		return 0, true
	case f.Algorithm == TokenBucket:
		return time.Duration(float64(cost-refused)/f.Limit.Limit.PerSecond()*float64(time.Second)) + time.Microsecond, true
	}
	return 0, false
}
