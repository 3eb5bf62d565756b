package store

import (
	"iter"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// fieldBudgets has the budgets of a bucket, or of a pool. Operators may change these, and not those of flows and groups.
const fieldBudgets = "budgets"

// seenBudgets are those of a bucket and of its pool: as texts of Redis, and read.
type seenBudgets struct {
	texts [2]string
	both  [2]shaper.Budgets
}

// ownBudgets are those of a configuration.
func ownBudgets(own *shaper.Bucket) *seenBudgets {
	b := &seenBudgets{both: [2]shaper.Budgets{own.Budgets}}
	if own.Pool != nil {
		b.both[1] = own.Pool.Budgets
	}
	return b
}

// seeBudgets takes in which budgets are in force: the first watch is that of the bucket, the second one that of its pool, if it is in one.
// A bucket that never has any keeps nothing.
func (b *Bucket) seeBudgets(watches []*settingsWatch) {
	var texts [2]string
	for i, w := range watches {
		if w.last == nil { // Redis has not answered, or has lost it
			return
		}
		texts[i] = w.last[fieldBudgets]
	}
	before := b.budgets.Load()
	if before != nil && before.texts == texts || before == nil && texts == [2]string{} && !b.own.Load().HasBudgets() {
		return
	}
	b.budgets.Store(&seenBudgets{texts, [2]shaper.Budgets{codec.ReadBudgets(texts[0]), codec.ReadBudgets(texts[1])}})
}

// BudgetUnits yields the units of the budgets of the bucket, its flows, its groups and its pool: of those in force, as far as Watch has seen
// them, else of the configuration. A unit may come several times.
func (b *Bucket) BudgetUnits() iter.Seq[string] {
	own := b.own.Load()
	seen := b.budgets.Load()
	if seen == nil {
		seen = ownBudgets(own)
	}
	return unitsOf(own, seen)
}

// HasBudgets reports whether there are any.
func (b *Bucket) HasBudgets() bool {
	for range b.BudgetUnits() {
		return true
	}
	return false
}

// unitsOf yields the units of budgets of a bucket: those of its flows and its groups, and these others.
func unitsOf(own *shaper.Bucket, others *seenBudgets) iter.Seq[string] {
	all := [4]shaper.Budgets{others.both[0], others.both[1]}
	if own.Flow != nil {
		all[2] = own.Flow.Budgets
	}
	if own.Group != nil {
		all[3] = own.Group.Budgets
	}
	return func(yield func(string) bool) {
		for _, budgets := range all {
			for i := range budgets {
				if !yield(budgets[i].Unit) {
					return
				}
			}
		}
	}
}
