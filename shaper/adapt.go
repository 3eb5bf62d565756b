package shaper

import (
	"errors"
	"fmt"
	"time"
)

// Scope is a flow, its group, their bucket or its pool. A hold, the adaptive rate, the circuit breaker and each [Blocker] of a job belong to a scope.
type Scope string

// The scopes. All but ScopeGroup are valid in [Adapt].
const (
	ScopeFlow   Scope = "flow"   // each flow has its own; in a bucket without flows, the bucket
	ScopeGroup  Scope = "group"  // each group has its own
	ScopeBucket Scope = "bucket" // the bucket has one
	ScopePool   Scope = "pool"   // all buckets of the pool share one
)

// Bounds of the settings.
const (
	MaxHold     = 366 * 24 * time.Hour
	MaxOpen     = 24 * time.Hour
	MaxFailures = 1000

	MaxDisableAfter = 366 * 24 * time.Hour
)

// OnGone says what happens to a flow whose receiver responds that it is gone (HTTP 410). The job is dead in any case.
type OnGone string

// The values of OnGone.
const (
	GoneDisablesOwnURL OnGone = "own_url" // it is disabled if it has its own URL, and the job went there
	GoneDisables       OnGone = "disable" // it is disabled
	GoneIsIgnored      OnGone = "ignore"  // nothing: the flow continues
)

// Adapt says how a bucket follows the downstream's responses. The zero value follows nothing. In a bucket without flows, the response to a job with
// its own URL affects only that job.
type Adapt struct {
	Scope   Scope         `setting:"scope"`
	Hold    bool          `setting:"hold"`     // whether a wait that the downstream asks for holds the whole scope
	MaxHold time.Duration `setting:"max_hold"` // the longest hold
	// HoldAtZero holds the scope until the reset, if a 2xx response reports that its rate limit has nothing remaining.
	HoldAtZero bool `setting:"hold_at_zero"`

	Floor int `setting:"floor,percent"` // lower bound of the adaptive rate, in percent of the configured rate, 1 to 100; 100 switches it off
}

// ReasonNoneRemain is the reason of a hold by HoldAtZero: the downstream accepts jobs, and reports that nothing of its rate limit remains.
const ReasonNoneRemain = "none_remaining"

// DefaultAdapt returns holds of an hour at most, a floor of 10 %, and the scope flow.
func DefaultAdapt() Adapt {
	return Adapt{Scope: ScopeFlow, Hold: true, MaxHold: time.Hour, HoldAtZero: true, Floor: 10}
}

// Validate reports every fault, joined, or nil. Each begins with the key of the configuration.
func (a Adapt) Validate() error {
	if a == (Adapt{}) {
		return nil
	}
	var errs []error
	switch a.Scope {
	case ScopeFlow, ScopeBucket, ScopePool:
	default:
		errs = append(errs, fmt.Errorf("adapt.scope: %q: want flow, bucket or pool", a.Scope))
	}
	if a.MaxHold < time.Second || a.MaxHold > MaxHold {
		errs = append(errs, fmt.Errorf("adapt.max_hold: %s: want 1s to %s", a.MaxHold, MaxHold))
	}
	if a.Floor < 1 || a.Floor > 100 {
		errs = append(errs, fmt.Errorf("adapt.floor: %d%%: want 1%% to 100%%", a.Floor))
	}
	return errors.Join(errs...)
}

// Breaker configures when a scope whose downstream fails stops sending (Michael Nygard, "Release It!", 2007). The zero value never opens.
type Breaker struct {
	Failures int           `setting:"failures"` // consecutive failures that open it; 0: it never opens
	OpenFor  time.Duration `setting:"open_for"` // until the first probe; doubled by each failed probe
	MaxOpen  time.Duration `setting:"max_open"` // at most, between two probes

	// DisableAfter is how long the breaker of a flow must be open for a failed probe to disable the flow. A disabled flow sends nothing until an
	// operator enables it: its waiting jobs become dead letters, and new ones are refused. 0: never. It applies where each flow is its own scope; a
	// bucket without flows is never disabled.
	DisableAfter time.Duration `setting:"disable_after"`

	OnGone OnGone `setting:"on_gone"` // "" is GoneDisablesOwnURL
}

// DefaultBreaker returns 10 failures, 30 s doubling to 10 m, and flows that are disabled after 5 days.
func DefaultBreaker() Breaker {
	return Breaker{Failures: 10, OpenFor: 30 * time.Second, MaxOpen: 10 * time.Minute, DisableAfter: 5 * 24 * time.Hour, OnGone: GoneDisablesOwnURL}
}

// Validate reports every fault, joined, or nil. Each begins with the key of the configuration.
func (b Breaker) Validate() error {
	var errs []error
	if b.Failures < 0 || b.Failures > MaxFailures {
		errs = append(errs, fmt.Errorf("breaker.failures: %d: want 0 to %d", b.Failures, MaxFailures))
	}
	if b == (Breaker{}) {
		return nil
	}
	if b.OpenFor < 100*time.Millisecond || b.OpenFor > b.MaxOpen {
		errs = append(errs, fmt.Errorf("breaker.open_for: %s: want 100ms to breaker.max_open (%s)", b.OpenFor, b.MaxOpen))
	}
	if b.DisableAfter < 0 || b.DisableAfter > 0 && b.DisableAfter < time.Second || b.DisableAfter > MaxDisableAfter {
		errs = append(errs, fmt.Errorf("breaker.disable_after: %s: want 0s (never), or 1s to %s", b.DisableAfter, MaxDisableAfter))
	}
	switch b.OnGone {
	case "", GoneDisablesOwnURL, GoneDisables, GoneIsIgnored:
	default:
		errs = append(errs, fmt.Errorf("breaker.on_gone: %q: want %s, %s or %s", b.OnGone, GoneDisablesOwnURL, GoneDisables, GoneIsIgnored))
	}
	if b.MaxOpen > MaxOpen {
		errs = append(errs, fmt.Errorf("breaker.max_open: %s: want at most %s", b.MaxOpen, MaxOpen))
	}
	return errors.Join(errs...)
}
