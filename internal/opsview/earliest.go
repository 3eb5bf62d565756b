package opsview

import (
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// EarliestBecause returns why the time at which a bucket is empty is the earliest one and no estimate; nothing for an estimate. A circuit breaker stays
// open if its probe fails, and the end of a request in flight is not known.
func (v *Bucket) EarliestBecause() []string {
	var reasons []string
	requests := v.InFlight
	if v.Batch != nil {
		requests = v.Batch.RequestsInFlight
	}
	if v.MaxInFlight > 0 && requests >= v.MaxInFlight {
		reasons = append(reasons, "max_in_flight is reached")
	}
	breaks := v.Downstream.breaks()
	if p := v.Pool; p != nil {
		if p.MaxInFlight > 0 && p.InFlight >= p.MaxInFlight {
			reasons = append(reasons, "max_in_flight of its pool is reached")
		}
		breaks = breaks || p.Downstream.breaks()
	}
	if f := v.Flows; f != nil {
		breaks = breaks || f.Open+f.HalfOpen > 0
	}
	if breaks {
		reasons = append(reasons, "a circuit breaker is open and its probe may fail")
	}
	if f := v.Flows; f != nil && f.Held > 0 {
		reasons = append(reasons, "flows are held")
	}
	return reasons
}

// breaks reports whether a circuit breaker is open or half-open.
func (d *Downstream) breaks() bool {
	return d != nil && (d.Breaker == shaper.BreakerOpen || d.Breaker == shaper.BreakerHalfOpen)
}

// GuessesBudgets reports whether a job's departure time depends on the budgets that jobs ahead of it reserve, which are estimated from the last ones.
func (v *Job) GuessesBudgets() bool {
	return v.Position != nil && *v.Position > 0 && slices.ContainsFunc(v.BlockedBy, func(by shaper.Blocker) bool { return by.Reason == shaper.BlockBudget })
}

// EarliestOnly reports whether a job's departure time is the earliest one and no estimate: the end of what blocks it is not known.
func (v *Job) EarliestOnly() bool {
	return slices.ContainsFunc(v.BlockedBy, func(by shaper.Blocker) bool {
		return by.Reason == shaper.BlockMaxInFlight || by.Reason == shaper.BlockBreakerOpen || by.Reason == shaper.BlockLastChance
	})
}
