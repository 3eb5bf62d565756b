package opsview

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Pool is the pool of a bucket, which others share, and the bucket's share of it. The effective settings are absent for an orphaned bucket that nothing
// has used.
type Pool struct {
	Name  string `json:"name"`
	Rate  string `json:"rate,omitempty"`
	Burst int64  `json:"burst,omitempty"`

	// Only of a pool with quotas: what remains of each.
	Quotas []Quota `json:"quota_use,omitempty"`

	// Only of a pool with budgets: what is charged to each.
	Budgets []Budget `json:"budget_use,omitempty"`

	// Requests in flight in all its buckets.
	InFlight int64 `json:"in_flight"`

	// Only of a pool with such a bound.
	MaxInFlight int64 `json:"max_in_flight,omitempty"`

	// Of any of its buckets.
	LastSlot *time.Time `json:"last_slot,omitempty"`

	// The bucket's share of the pool, relative to the other buckets that have work.
	Weight int64 `json:"weight,omitempty"`

	Downstream *Downstream `json:"downstream,omitempty"` // the effect of responses to its buckets; none without one
}

// PoolOf shows a pool at that time, by the clock of Redis: nil of a bucket that is in none.
func PoolOf(p *operator.PoolInfo, now time.Time) *Pool {
	if p == nil {
		return nil
	}
	view := &Pool{Name: p.Name, InFlight: p.InFlight, Quotas: QuotasOf(p.Quotas, now), Budgets: BudgetsOf(p.Budgets, now), Downstream: DownstreamOf(p.Downstream, now)}
	if !p.Rate.IsZero() {
		view.Rate, view.Burst, view.MaxInFlight, view.Weight = p.Rate.String(), p.Burst, p.MaxInFlight, p.Weight
	}
	if !p.LastSlot.IsZero() {
		slot := p.LastSlot.UTC()
		view.LastSlot = &slot
	}
	return view
}

// Bound returns the jobs in flight and their bound, for people.
func (p *Pool) Bound() string {
	if p.MaxInFlight == 0 {
		return fmt.Sprintf("%d in flight", p.InFlight)
	}
	return fmt.Sprintf("%d of %d in flight", p.InFlight, p.MaxInFlight)
}

// poolNameOf returns the configured pool of a bucket, "" if it is in none.
func poolNameOf(b *shaper.Bucket) string {
	if b.Pool == nil {
		return ""
	}
	return b.Pool.Name
}

// poolName is a pool in a sentence, by its name: "" is none.
func poolName(name string) string {
	if name == "" {
		return "no pool"
	}
	return fmt.Sprintf("pool %q", name)
}
