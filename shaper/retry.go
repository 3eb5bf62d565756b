package shaper

import (
	"errors"
	"fmt"
	"time"
)

// RetryPolicy says how often and when a failed delivery is tried again.
// The defaults try for about a day and a half at most.
type RetryPolicy struct {
	MaxAttempts int           // deliveries, the first included
	MinBackoff  time.Duration // upper bound of the first delay, doubled each time
	MaxBackoff  time.Duration // upper bound of any delay, also one that was asked for
}

// DefaultRetryPolicy returns 16 attempts, 5 s doubling to 12 h.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{MaxAttempts: 16, MinBackoff: 5 * time.Second, MaxBackoff: 12 * time.Hour}
}

// Validate reports every fault of the policy, joined, or nil.
func (p RetryPolicy) Validate() error {
	var errs []error
	if p.MaxAttempts < 1 || p.MaxAttempts > MaxTries {
		errs = append(errs, fmt.Errorf("retry.max_attempts: %d: want 1 to %d", p.MaxAttempts, MaxTries))
	}
	if p.MinBackoff < time.Millisecond || p.MinBackoff > p.MaxBackoff {
		errs = append(errs, fmt.Errorf("retry.min_backoff: %s: want 1ms to retry.max_backoff (%s)", p.MinBackoff, p.MaxBackoff))
	}
	if p.MaxBackoff > MaxDelay {
		errs = append(errs, fmt.Errorf("retry.max_backoff: %s: want at most %s", p.MaxBackoff, MaxDelay))
	}
	return errors.Join(errs...)
}

// Delay returns how long to wait after the attempt-th delivery (1 is the first) has failed: exponential backoff with full
// jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"). The bound is MinBackoff, doubled with each attempt, up to
// MaxBackoff: 5s, 10s, 20s, 40s. The delay is random, in [0, 1), times the bound. A Retry-After of the downstream
// is obeyed up to MaxBackoff.
func (p RetryPolicy) Delay(attempt int, retryAfter time.Duration, random float64) time.Duration {
	bound := p.MaxBackoff
	if shift := max(attempt, 1) - 1; shift < 63 && p.MinBackoff <= p.MaxBackoff>>shift { // no overflow
		bound = p.MinBackoff << shift
	}
	delay := time.Duration(random * float64(bound))
	return max(delay, min(retryAfter, p.MaxBackoff))
}
