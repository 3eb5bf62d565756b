package opsview

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Downstream is what the answers of a downstream have changed of a flow, a bucket or a pool.
type Downstream struct {
	HeldUntil *time.Time          `json:"held_until,omitempty"`      // it sends nothing before; none if it is not held now
	Rate      float64             `json:"rate_per_second,omitempty"` // the adaptive rate; none if it is not slowed
	Factor    float64             `json:"factor"`                    // of its rate; 1 if it is not slowed
	Breaker   shaper.BreakerState `json:"breaker"`
	Failures  int64               `json:"failures"`             // in a row
	OpenSince *time.Time          `json:"open_since,omitempty"` // when the breaker opened; none if it is closed
	Reason    string              `json:"reason,omitempty"`     // of the last answer that changed this
	Heard     *time.Time          `json:"heard,omitempty"`      // when it came

	Text string `json:"text,omitempty"` // the same for people; none if there are but failures in a row
}

// DownstreamOf shows what is in force at that time, by the clock of Redis: nil if nothing is.
func DownstreamOf(d *shaper.Downstream, now time.Time) *Downstream {
	if d == nil || !d.HeldAt(now) && !d.Slowed() && d.Breaker == shaper.BreakerClosed && d.Failures == 0 {
		return nil
	}
	view := &Downstream{
		Factor: d.Factor, Breaker: d.Breaker, Failures: d.Failures, OpenSince: instant(d.OpenSince), Reason: d.Reason, Heard: instant(d.Heard), Text: d.Text(now),
	}
	if d.HeldAt(now) {
		view.HeldUntil = instant(d.HeldUntil)
	}
	if d.Slowed() {
		view.Rate = d.Rate.PerSecond()
	}
	return view
}
