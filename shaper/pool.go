package shaper

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/admission"
)

// Pool holds limits that several buckets share. Slots obey its rate, quotas and in-flight bound over all of these buckets and all dispatchers, in
// addition to each bucket's own. Buckets that have work share it by [Bucket.Weight]; others use what one leaves unused.
//
// Buckets of one pool share a hash slot of a Redis Cluster. The zero value is not valid.
type Pool struct {
	Name string `setting:"name"` // like a bucket's, and different from the names of its buckets

	Rate        admission.Rate   `setting:"rate,redis=rate,change" help:"departures of all its buckets together, such as '20/s' or 500/m"`
	Burst       int64            `setting:"burst,redis=burst,change" help:"'number' of departures that may leave at once after a quiet time"`                                 // of the pool; 0 means 1
	Quotas      []admission.Rate `setting:"quotas,redis=quotas"`                                                                                                              // as Bucket.Quotas
	MaxInFlight int64            `setting:"max_in_flight,redis=max_in_flight,change" help:"'number' of jobs in flight at most, in all its buckets; 0: their own bounds only"` // concurrent requests over all its buckets; 0: only their own bounds

	Budgets     Budgets `setting:"budgets,redis=budgets,change" help:"what departures of all its buckets cost at most in any window of that length, 'amounts' such as '90000 tokens/m'; none: no budget"` // as Bucket.Budgets
	BudgetBurst int64   `setting:"budget_burst,percent,redis=budget_burst"`                                                                                                                               // as Bucket.BudgetBurst

	// Revision orders configurations, as Bucket.Revision.
	Revision int64 `setting:"-"`
}

// Validate reports every fault of the pool, joined, or nil. Each begins with the key of the configuration.
func (p *Pool) Validate() error { return errors.Join(p.validate("")...) }

// validate returns the faults of the pool; each begins with the prefix and the key.
func (p *Pool) validate(prefix string) []error {
	f := faults{prefix: prefix}
	f.name(p.Name)
	if p.Rate.IsZero() {
		f.add("rate", "is missing: say how fast the pool leaks, such as \"50/s\"")
	} else {
		f.pace(p.Rate, p.Burst)
	}
	if p.Burst != 0 { // the same as 1
		f.inRange("burst", p.Burst, 1, MaxBurst)
	}
	f.inRange("max_in_flight", p.MaxInFlight, 0, MaxCapacity)
	f.inRange("budget_burst", p.BudgetBurst, 0, 100)
	return slices.Concat(f.errs, validateQuotas(prefix+"quotas", p.Quotas), p.Budgets.validate(prefix+"budgets"))
}

// PoolWarnings returns the settings of the bucket that never take effect, because its pool allows less.
func (b Bucket) PoolWarnings() []string {
	if b.Pool == nil {
		return nil
	}
	var warnings []string
	if p, rate := b.Pool, b.FastestRate(); rate.PerSecond() > p.Rate.PerSecond() {
		of := ""
		if rate != b.Rate {
			of = " of its calendar"
		}
		warnings = append(warnings, fmt.Sprintf("rate: %s%s is more than the %s of its pool %q, which holds", rate, of, p.Rate, p.Name))
	}
	if p := b.Pool; p.MaxInFlight > 0 && b.MaxInFlight > p.MaxInFlight {
		warnings = append(warnings, fmt.Sprintf("max_in_flight: %d is more than the %d of its pool %q, which holds", b.MaxInFlight, p.MaxInFlight, p.Name))
	}
	return warnings
}
