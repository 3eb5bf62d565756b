package opsview

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Budget is a budget of a bucket, a pool, a flow or a group, with what is charged to it.
type Budget struct {
	Budget string `json:"budget" jsonschema:"example=90000 tokens/m"`

	// In its window until now: the reservations of jobs that are not settled, and the usage of the others.
	Charged int64 `json:"charged"`

	// Of that, reserved by jobs that are not settled.
	Open int64 `json:"open"`
	Free int64 `json:"free"`

	// When the next job is sent, if it reserves as much as the last ones did. Absent if that is now.
	HeldUntil *time.Time `json:"held_until,omitempty"`
}

// BudgetsOf shows budgets; none is nil.
func BudgetsOf(uses []shaper.BudgetUse, now time.Time) []Budget {
	var list []Budget
	for _, u := range uses {
		b := Budget{Budget: u.Budget.String(), Charged: u.Charged, Open: u.Open, Free: u.Free()}
		if u.Frees.After(now) {
			b.HeldUntil = instant(u.Frees)
		}
		list = append(list, b)
	}
	return list
}

// unusedBudgets returns the budgets of a configuration, with nothing charged.
func unusedBudgets(budgets shaper.Budgets) []shaper.BudgetUse {
	var uses []shaper.BudgetUse
	for _, b := range budgets {
		uses = append(uses, shaper.BudgetUse{Budget: b})
	}
	return uses
}

// Text returns what is charged.
func (b *Budget) Text() string {
	text := fmt.Sprintf("%s: %d charged, of that %d in flight; %d free", b.Budget, b.Charged, b.Open, b.Free)
	if b.HeldUntil != nil {
		text += fmt.Sprintf(", the next job leaves at %s", b.HeldUntil.Format(time.RFC3339))
		if b.Free > 0 {
			text += ", as that is spread over the window"
		}
	}
	return text
}

// budgetNote returns the budget that holds longest; "" if none does.
func budgetNote(uses []shaper.BudgetUse, now time.Time) string {
	held := shaper.HoldingBudget(uses, now)
	if held == nil {
		return ""
	}
	return fmt.Sprintf("its budget of %s lets the next job go at %s (free in its window: %d)", held.Budget, instant(held.Frees).Format(time.RFC3339), held.Free())
}
