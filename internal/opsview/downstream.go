package opsview

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Downstream is the effect of a downstream's responses on a flow, a bucket or a pool.
type Downstream struct {
	// It sends nothing before. Absent if it is not held now.
	HeldUntil *time.Time `json:"held_until,omitempty"`

	// The adaptive rate. Absent if it is not slowed.
	Rate float64 `json:"rate_per_second,omitempty"`

	// The adaptive rate as a part of the effective rate, 0 to 1. 1 if it is not slowed.
	Factor  float64             `json:"factor"`
	Breaker shaper.BreakerState `json:"breaker"`

	// Failures in a row.
	Failures int64 `json:"failures"`

	// When the breaker opened. Absent if it is closed.
	OpenSince *time.Time `json:"open_since,omitempty"`

	// Reason of the last response that changed something.
	Reason string `json:"reason,omitempty" jsonschema:"example=http_429"`

	// When that response arrived.
	ChangedAt *time.Time `json:"changed_at,omitempty"`

	// The same for people. Absent if there are but failures in a row.
	Text string `json:"text,omitempty"`
}

// DownstreamOf returns the effect at that time, by the clock of Redis: nil if there is none.
func DownstreamOf(d *shaper.Downstream, now time.Time) *Downstream {
	if d == nil || !d.HeldAt(now) && !d.Slowed() && d.Breaker == shaper.BreakerClosed && d.Failures == 0 {
		return nil
	}
	view := &Downstream{
		Factor: d.Factor, Breaker: d.Breaker, Failures: d.Failures, OpenSince: instant(d.OpenSince), Reason: d.Reason, ChangedAt: instant(d.ChangedAt), Text: d.Text(now),
	}
	if d.HeldAt(now) {
		view.HeldUntil = instant(d.HeldUntil)
	}
	if d.Slowed() {
		view.Rate = d.Rate.PerSecond()
	}
	return view
}
