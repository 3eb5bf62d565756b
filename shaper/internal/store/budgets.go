package store

import (
	"iter"
	"strings"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// fieldBudgets holds the budgets of a bucket or a pool. fieldPartBudgets holds the units of the own budgets of single flows and groups, each followed
// by a space. Operators may change these, but not the budgets of all flows and groups.
const (
	fieldBudgets     = "budgets"
	fieldPartBudgets = "own_budgets"
)

// seenBudgets holds the budgets of a bucket and its pool, as texts of Redis and parsed. It also holds the units of the budgets of single flows and
// groups.
type seenBudgets struct {
	texts [3]string
	both  [2]shaper.Budgets
	parts []string
}

// ownBudgets returns the budgets of a configuration.
func ownBudgets(own *shaper.Bucket) *seenBudgets {
	b := &seenBudgets{both: [2]shaper.Budgets{own.Budgets}}
	if own.Pool != nil {
		b.both[1] = own.Pool.Budgets
	}
	return b
}

// seeBudgets stores the effective budgets that the watches have read. The first watch is the bucket's, the second its pool's, if it is in one. A
// bucket that never had budgets stores nothing.
func (b *Bucket) seeBudgets(watches []*settingsWatch) {
	var texts [3]string
	for i, w := range watches {
		if w.last == nil { // Redis has not answered, or has lost it
			return
		}
		texts[i] = w.last[fieldBudgets]
	}
	texts[2] = watches[0].last[fieldPartBudgets]
	before := b.budgets.Load()
	if before != nil && before.texts == texts || before == nil && texts == [3]string{} && !b.own.Load().HasBudgets() {
		return
	}
	b.budgets.Store(&seenBudgets{texts, [2]shaper.Budgets{codec.ReadBudgets(texts[0]), codec.ReadBudgets(texts[1])}, strings.Fields(texts[2])})
}

// BudgetUnits yields the units of the budgets of the bucket, its flows, its groups and its pool. They are the effective budgets that Watch has
// read, else the budgets of the configuration. A unit may occur several times.
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

// unitsOf yields the units of the budgets of a bucket's flows and groups, and the units of others.
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
		for _, unit := range others.parts {
			if !yield(unit) {
				return
			}
		}
	}
}
