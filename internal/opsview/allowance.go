package opsview

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// Quota is a quota of a bucket, a pool, a flow or a group, with what remains of it.
type Quota struct {
	Quota string `json:"quota" jsonschema:"example=5/m"`

	// Departures in its window until now.
	Used int64 `json:"used"`

	// How many jobs may depart now.
	Left int64 `json:"left"`

	// Nothing is sent before. Absent if it lets a job depart now.
	HeldUntil *time.Time `json:"held_until,omitempty"`
}

// QuotasOf shows quotas; none is nil.
func QuotasOf(uses []shaper.QuotaUse, now time.Time) []Quota {
	var list []Quota
	for _, u := range uses {
		q := Quota{Quota: u.Quota.String(), Used: u.Used, Left: u.Left()}
		if u.IsUp(now) {
			q.HeldUntil = instant(u.Frees)
		}
		list = append(list, q)
	}
	return list
}

// unusedQuotas returns the quotas of a configuration, with nothing used.
func unusedQuotas(quotas []admission.Rate) []shaper.QuotaUse {
	var uses []shaper.QuotaUse
	for _, q := range quotas {
		uses = append(uses, shaper.QuotaUse{Quota: q})
	}
	return uses
}

// Text returns what remains.
func (q *Quota) Text() string {
	text := fmt.Sprintf("%s: %d used, %d left", q.Quota, q.Used, q.Left)
	if q.HeldUntil != nil {
		text += fmt.Sprintf(", nothing leaves before %s", q.HeldUntil.Format(time.RFC3339))
	}
	return text
}

// leastLeft returns what remains of the most used quota or budget, such as "2 of 10/m"; "" without any.
func leastLeft(quotas []Quota, budgets []Budget) string {
	text, least := "", 2.0
	see := func(left, used int64, of string) {
		if all := left + used; all > 0 && float64(left)/float64(all) < least {
			text, least = fmt.Sprintf("%d of %s", left, of), float64(left)/float64(all)
		}
	}
	for _, q := range quotas {
		see(q.Left, q.Used, q.Quota)
	}
	for _, b := range budgets {
		see(b.Free, b.Charged, b.Budget)
	}
	return text
}

// Left returns what remains of the bucket's own most used quota or budget; "" without any.
func (v *Bucket) Left() string { return leastLeft(v.Quotas, v.Budgets) }

// quotaNote returns the quota that holds longest; "" if none does.
func quotaNote(uses []shaper.QuotaUse, now time.Time) string {
	held := shaper.HoldingQuota(uses, now)
	if held == nil {
		return ""
	}
	return fmt.Sprintf("its quota of %s is used up until %s", held.Quota, instant(held.Frees).Format(time.RFC3339))
}

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
