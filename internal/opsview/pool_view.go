package opsview

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// PoolView is a pool with its buckets as JSON shows it.
type PoolView struct {
	Name string `json:"name"`

	// A bucket in Redis names it, and the configuration has no such pool.
	Orphaned bool `json:"orphaned"`

	// True if nothing has used the pool yet: the settings are from the configuration. Absent otherwise.
	Unused   bool   `json:"unused,omitempty"`
	Revision *int64 `json:"revision,omitempty"`
	Rate     string `json:"rate,omitempty"`
	Burst    int64  `json:"burst,omitempty"`

	// Only of a pool with quotas.
	Quotas []string `json:"quotas,omitempty"`

	// The same, with what remains of each.
	QuotaUse []Quota `json:"quota_use,omitempty"`

	// Only of a pool with budgets: what is charged to each.
	BudgetUse []Budget `json:"budget_use,omitempty"`

	// Requests in flight in all its buckets.
	InFlight int64 `json:"in_flight"`

	// Only of a pool with such a bound.
	MaxInFlight int64 `json:"max_in_flight,omitempty"`

	// Of any of its buckets.
	LastSlot *time.Time `json:"last_slot,omitempty"`

	// The buckets of the caller's key.
	Buckets []PoolBucket `json:"buckets"`

	// Settings that an operator changed, if they differ from the configuration.
	Overrides []Override `json:"overrides"`

	Downstream *Downstream `json:"downstream,omitempty"` // the effect of responses to its buckets; none without one

	// What needs attention.
	Notes []string `json:"notes"`

	// The differences from the configuration of this process.
	Differences []Difference `json:"differences"`

	Outcome
}

// PoolBucket is a bucket in a pool.
type PoolBucket struct {
	Name string `json:"name"`

	// Its share of the pool, relative to the other buckets that have work; absent while it is not known.
	Weight   int64 `json:"weight,omitempty"`
	InFlight int64 `json:"in_flight"`

	// It has jobs to send and takes its share.
	HasWork bool `json:"has_work"`
}

// Override is a setting of a bucket or a pool that was changed at run time.
type Override struct {
	Setting    shaper.Setting `json:"setting"`
	Configured string         `json:"configured"`
	InForce    string         `json:"in_force"`
	By         string         `json:"by"`
	At         *time.Time     `json:"at,omitempty"`
}

// PoolViewOf returns the view of a pool. configured is the pool in the configuration here, nil if it has none. named says whether a bucket of the
// configuration names it. revision is the revision of the configuration.
func PoolViewOf(p operator.PoolDetails, configured *shaper.Pool, named bool, revision int64) PoolView {
	view := PoolView{Name: p.Name, Orphaned: configured == nil, Unused: configured != nil && !p.Configured, Notes: []string{}, Differences: []Difference{}}
	note := func(format string, args ...any) { view.Notes = append(view.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case view.Orphaned:
		note("orphaned: not in the configuration")
	case view.Unused:
		p.Rate, p.Burst, p.MaxInFlight, p.Quotas = configured.Rate, max(configured.Burst, 1), configured.MaxInFlight, configured.Quotas
		p.QuotaUse, p.BudgetUse = unusedQuotas(configured.Quotas), unusedBudgets(configured.Budgets)
		note("not used yet")
	case p.Revision > revision:
		note("obeys revision %d, the configuration here has %d", p.Revision, revision)
	}
	if configured != nil && !named {
		note("no bucket of the configuration names it")
	}
	if p.Configured {
		view.Revision = &p.Revision
		view.Differences = poolDifferences("", &p, configured, revision)
	}
	if len(view.Differences) > 0 {
		note("differs from the configuration here, see pool show")
	}
	if !p.Rate.IsZero() {
		view.Rate, view.Burst, view.MaxInFlight = p.Rate.String(), p.Burst, p.MaxInFlight
		for _, quota := range p.Quotas {
			view.Quotas = append(view.Quotas, quota.String())
		}
	}
	view.QuotaUse = QuotasOf(p.QuotaUse, p.Now)
	if text := quotaNote(p.QuotaUse, p.Now); text != "" {
		note("%s", text)
	}
	view.BudgetUse = BudgetsOf(p.BudgetUse, p.Now)
	if text := budgetNote(p.BudgetUse, p.Now); text != "" {
		note("%s", text)
	}
	view.InFlight, view.LastSlot, view.Overrides = p.InFlight, instant(p.LastSlot), OverridesOf(p.Overrides)
	if view.Downstream = DownstreamOf(p.Downstream, p.Now); view.Downstream != nil && view.Downstream.Text != "" {
		note("%s", view.Downstream.Text)
	}
	view.Buckets = make([]PoolBucket, len(p.Buckets))
	for i, b := range p.Buckets {
		view.Buckets[i] = PoolBucket(b)
	}
	return view
}

// OverridesOf shows overrides, none as an empty list.
func OverridesOf(overrides []operator.Override) []Override {
	views := make([]Override, len(overrides))
	for i, override := range overrides {
		views[i] = Override{Setting: override.Setting, Configured: override.Configured, InForce: override.InForce, By: override.By, At: instant(override.At)}
	}
	return views
}
