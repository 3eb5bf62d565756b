package shaper

import (
	"errors"
	"slices"
	"time"
)

// Bounds of a retry policy.
const (
	MinMaxAge       = time.Second
	MaxKeepAttempts = 20

	minWait = time.Millisecond
)

// RetryPolicy says how often and when a failed delivery is tried again.
// The defaults try for about 17 hours on average, and for a day and a half at most.
type RetryPolicy struct {
	MaxAttempts int           `setting:"max_attempts,redis=max_attempts"` // deliveries, the first included, 1 to MaxTries
	MinBackoff  time.Duration `setting:"min_backoff"`                     // upper bound of the first delay, doubled each time
	MaxBackoff  time.Duration `setting:"max_backoff"`                     // upper bound of any delay, including one that the downstream asked for; at most MaxDelay

	// Schedule, if not empty, replaces the doubling: its first entry is the wait after the first attempt. The last entry repeats. Each wait is from
	// 1ms to MaxBackoff. [RetryPolicy.WithSchedule] adjusts the other fields.
	Schedule []time.Duration `setting:"schedule"`

	// MaxAge is the time since its first attempt after which a job is not tried again: it becomes a dead letter when its turn comes. Time before the
	// first attempt does not count, so a job that was never tried is never too old. It is MinMaxAge to MaxDelay, or 0 for no bound. Without a bound,
	// a receiver that always responds 429 with a time keeps the job forever.
	MaxAge time.Duration `setting:"max_age,redis=max_age"`

	// KeepAttempts is how many of the latest outcomes of an unfinished or dead job are kept, 0 to MaxKeepAttempts.
	KeepAttempts int `setting:"keep_attempts,redis=keep_attempts"`
}

// DefaultRetryPolicy returns 16 attempts, 5 s doubling to 12 h, an age of 3 days, and 5 outcomes.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{
		MaxAttempts: 16, MinBackoff: 5 * time.Second, MaxBackoff: 12 * time.Hour, MaxAge: 3 * 24 * time.Hour, KeepAttempts: 5,
	}
}

// WithSchedule returns the policy with these waits, and with one more attempt than waits. If MaxBackoff is too low for the longest wait and its
// jitter, it is raised. Without waits the policy is unchanged.
func (p RetryPolicy) WithSchedule(waits ...time.Duration) RetryPolicy {
	if len(waits) == 0 {
		return p
	}
	longest := min(slices.Max(waits), MaxDelay)
	p.Schedule, p.MaxAttempts = waits, len(waits)+1
	p.MaxBackoff = min(max(p.MaxBackoff, longest+longest/jitterShare), MaxDelay)
	return p
}

// Validate reports every fault of the policy, joined, or nil. Each begins with the key of the configuration.
func (p RetryPolicy) Validate() error {
	f := faults{prefix: "retry."}
	f.inRange("max_attempts", int64(p.MaxAttempts), 1, MaxTries)
	if p.MinBackoff < minWait || p.MinBackoff > p.MaxBackoff {
		f.add("min_backoff", "%s: want 1ms to retry.max_backoff (%s)", p.MinBackoff, p.MaxBackoff)
	}
	if p.MaxBackoff > MaxDelay {
		f.add("max_backoff", "%s: want at most %s", p.MaxBackoff, MaxDelay)
	}
	if len(p.Schedule) >= MaxTries {
		f.add("schedule", "has %d waits: want at most %d", len(p.Schedule), MaxTries-1)
	}
	for _, wait := range p.Schedule {
		if wait < minWait || wait > p.MaxBackoff {
			f.add("schedule", "%s: want waits of 1ms to %s", wait, p.MaxBackoff)
		}
	}
	if p.MaxAge != 0 && (p.MaxAge < MinMaxAge || p.MaxAge > MaxDelay) {
		f.add("max_age", "%s: want %s to %s, or 0s for no bound", p.MaxAge, MinMaxAge, MaxDelay)
	}
	f.inRange("keep_attempts", int64(p.KeepAttempts), 0, MaxKeepAttempts)
	return errors.Join(f.errs...)
}

// jitterShare divides a wait of a schedule: the jitter is at most 10 % in either direction.
const jitterShare = 10

// Delay returns how long to wait after the attempt-th delivery (1 is the first) has failed, at most MaxBackoff. random is in
// [0, 1).
//
// Without a schedule it is exponential backoff with full jitter (AWS Architecture Blog, "Exponential Backoff And
// Jitter"). The bound is MinBackoff, doubled with each attempt, up to MaxBackoff: 5s, 10s, 20s, 40s. The delay is random
// times the bound.
//
// A schedule has a jitter of 10 % in either direction, so that jobs that failed together are retried apart.
//
// A Retry-After of the downstream is obeyed up to MaxBackoff: Delay returns the longer of the two.
func (p RetryPolicy) Delay(attempt int, retryAfter time.Duration, random float64) time.Duration {
	attempt = max(attempt, 1)
	var delay time.Duration
	if n := len(p.Schedule); n > 0 {
		wait := p.Schedule[min(attempt, n)-1]
		delay = wait - wait/jitterShare + time.Duration(random*2*float64(wait/jitterShare))
	} else {
		bound := p.MaxBackoff
		if shift := attempt - 1; shift < 63 && p.MinBackoff <= p.MaxBackoff>>shift { // no overflow
			bound = p.MinBackoff << shift
		}
		delay = time.Duration(random * float64(bound))
	}
	return min(max(delay, retryAfter), p.MaxBackoff)
}
