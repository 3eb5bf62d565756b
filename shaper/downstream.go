package shaper

import (
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states.
const (
	BreakerClosed   BreakerState = "closed"    // jobs depart
	BreakerOpen     BreakerState = "open"      // none departs before HeldUntil; then the next one is the probe
	BreakerHalfOpen BreakerState = "half-open" // the probe is in flight
)

// Downstream is how responses have changed the pace of a scope: a flow, a bucket or a pool. Times are by the clock of Redis.
type Downstream struct {
	// HeldUntil is when the scope may send again; zero or past: it is not held. While Breaker is BreakerOpen, the next departure is the probe. While
	// it is BreakerHalfOpen, HeldUntil is the end of the probe's lease; the outcome of the probe ends the hold earlier.
	HeldUntil time.Time

	Rate   admission.Rate // the adaptive rate; zero: there is none
	Factor float64        // Rate as a part of the effective rate, 0 to 1; 1 without an adaptive rate

	Breaker   BreakerState
	Failures  int64     // consecutive
	OpenSince time.Time // when the breaker first opened; zero: it is closed

	Reason    string    // of the response that last changed this: one word, as in LastResponse; "" if unknown
	ChangedAt time.Time // the time of that response; zero: never
}

// ReasonMoves is the reason of a hold without a response: the bucket changes its pool once its deliveries under way have ended.
const ReasonMoves = "moves"

// HeldAt reports whether the scope is held at that time, by the clock of Redis; false for nil.
func (d *Downstream) HeldAt(now time.Time) bool { return d != nil && d.HeldUntil.After(now) }

// Slowed reports whether an adaptive rate is effective; false for nil.
func (d *Downstream) Slowed() bool { return d != nil && !d.Rate.IsZero() }

// Text describes in a sentence the state at that time, by the clock of Redis; "" if nothing is changed.
func (d *Downstream) Text(now time.Time) string {
	var parts []string
	if d.HeldAt(now) || d != nil && d.Breaker != BreakerClosed {
		parts = append(parts, d.heldText(now))
	}
	if d.Slowed() {
		parts = append(parts, d.slowedText())
	}
	return strings.Join(parts, "; ")
}

func (d *Downstream) heldText(now time.Time) string {
	failed := fmt.Sprintf("%d failures in a row", d.Failures)
	if d.Reason != "" {
		failed += ", the last one " + d.Reason
	}
	switch {
	case d.Breaker == BreakerHalfOpen:
		return fmt.Sprintf("circuit breaker half-open since a probe left; it opened at %s (%s)", clockText(d.OpenSince), failed)
	case d.Breaker == BreakerOpen && d.HeldAt(now):
		return fmt.Sprintf("circuit breaker open since %s (%s); the next probe may leave at %s", clockText(d.OpenSince), failed, clockText(d.HeldUntil))
	case d.Breaker == BreakerOpen:
		return fmt.Sprintf("circuit breaker open since %s (%s); the next departure is the probe", clockText(d.OpenSince), failed)
	}
	if d.Reason == ReasonMoves {
		return "changes its pool: it sends nothing until its deliveries under way have ended"
	}
	return fmt.Sprintf("held until %s%s", clockText(d.HeldUntil), inParens(d.Reason))
}

func (d *Downstream) slowedText() string {
	part := ""
	if d.Factor < 1 {
		part = fmt.Sprintf(", %.0f %% of its rate", 100*d.Factor)
	}
	return fmt.Sprintf("slowed to %.3g/s%s%s", d.Rate.PerSecond(), part, inParens(d.Reason))
}
