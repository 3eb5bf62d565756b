package shaper

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// Bounds of budgets.
const (
	MaxBudgets      = 4
	MaxBudgetAmount = math.MaxInt32
	MinBudgetWindow = time.Second

	// DefaultBudgetBurst is the percentage of a budget that may be used at once after a quiet time.
	DefaultBudgetBurst = 20

	MaxUnits     = 8  // that a job may name
	maxUnitBytes = 32 // of the name of a unit
)

// Predefined units. Callers may use any other word as a unit of their own.
const (
	UnitInput  = "input"
	UnitOutput = "output"
	UnitTokens = "tokens" // input and output together
)

// Units are amounts by unit, such as what a job reserves of budgets: {"input": 1200, "output": 400}. The amount of UnitTokens is its own entry plus
// UnitInput and UnitOutput.
type Units map[string]int64

// Of returns the amount of a unit. named is false if the units do not name it.
func (u Units) Of(unit string) (amount int64, named bool) {
	amount, named = u[unit]
	if unit == UnitTokens {
		for _, part := range []string{UnitInput, UnitOutput} {
			n, ok := u[part]
			amount, named = amount+n, named || ok
		}
	}
	return amount, named
}

// String returns a text such as "input:1200,output:400", sorted by unit.
func (u Units) String() string {
	var b strings.Builder
	for i, unit := range slices.Sorted(maps.Keys(u)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(unit + ":" + strconv.FormatInt(u[unit], 10))
	}
	return b.String()
}

// ParseUnits parses the text of [Units.String]. It skips what it cannot parse.
func ParseUnits(text string) Units {
	units := Units{}
	for part := range strings.SplitSeq(text, ",") {
		unit, amount, _ := strings.Cut(part, ":")
		if n, err := strconv.ParseInt(amount, 10, 64); err == nil {
			units[unit] = n
		}
	}
	return units
}

// Validate returns the first fault, or nil.
func (u Units) Validate() error {
	if len(u) > MaxUnits {
		return fmt.Errorf("%d units: want at most %d", len(u), MaxUnits)
	}
	for _, unit := range slices.Sorted(maps.Keys(u)) {
		if !admission.IsUnit(unit) || len(unit) > maxUnitBytes || unit == admission.UnitRequests {
			return fmt.Errorf("%q is no unit: want a word of at most %d lower-case letters, such as tokens, and not requests, which rates and quotas count", unit, maxUnitBytes)
		}
		if n := u[unit]; n < 0 || n > MaxBudgetAmount {
			return fmt.Errorf("%s: %d: want 0 to %d", unit, n, int64(MaxBudgetAmount))
		}
	}
	return nil
}

// Budgets bound what departures cost in sliding windows, such as "90000 tokens/m": up to [MaxBudgets]. When a slot is handed out, the charges in the
// window are at most the budget, including this one and slots already handed out for later. A charge is the job's reservation until it is settled,
// then its actual usage ([Outcome.Used]). So a budget is exceeded only if reservations were too low; then nothing departs until it fits. Like a
// quota's, a window is 2 % longer (at most 11 s). It has 100 slices: about 3 % of a budget go unused. A budget of at most an hour is spread over its
// window, see [Bucket.BudgetBurst].
//
// A changed amount or window keeps the recorded charges; a new budget starts empty.
type Budgets []admission.Rate

// noBudgets is the text of an empty list.
const noBudgets = "none"

// String returns a text such as "90000 tokens/m, 2000000 tokens/d", or "none" for an empty list.
func (budgets Budgets) String() string {
	texts := make([]string, len(budgets))
	for i, budget := range budgets {
		texts[i] = budget.String()
	}
	return cmp.Or(strings.Join(texts, ", "), noBudgets)
}

// MarshalText writes the text of [Budgets.String].
func (budgets Budgets) MarshalText() ([]byte, error) { return []byte(budgets.String()), nil }

// UnmarshalText reads the text of [Budgets.String]. It checks only the syntax; [Bucket.Validate] checks the values.
func (budgets *Budgets) UnmarshalText(text []byte) error {
	list := Budgets{}
	if string(text) == noBudgets {
		*budgets = list
		return nil
	}
	for one := range strings.SplitSeq(string(text), ",") {
		budget, err := admission.ParseRate(one)
		if err != nil {
			return err //nolint:wrapcheck // it says which rate it is
		}
		list = append(list, budget)
	}
	*budgets = list
	return nil
}

// Validate reports every fault of the budgets, joined, or nil.
func (budgets Budgets) Validate() error { return errors.Join(budgets.validate("budgets")...) }

func (budgets Budgets) validate(key string) []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(key+": "+format, args...)) }
	if len(budgets) > MaxBudgets {
		fail("%d budgets: want at most %d", len(budgets), MaxBudgets)
	}
	for i, b := range budgets {
		switch {
		case b.Count < 1 || b.Count > MaxBudgetAmount:
			fail("%q: want an amount of 1 to %d", b, int64(MaxBudgetAmount))
		case b.Unit == admission.UnitRequests:
			fail("%q: requests are counted by quotas: want another unit, such as \"90000 tokens/m\"", b)
		case len(b.Unit) > maxUnitBytes:
			fail("%q: want a unit of at most %d letters", b, maxUnitBytes)
		case b.Per < MinBudgetWindow || b.Per > MaxDedupeWindow:
			fail("%q: want a window of %s to %s", b, MinBudgetWindow, MaxDedupeWindow)
		}
		for _, other := range budgets[:i] {
			if other.Unit == b.Unit && other.Per == b.Per {
				fail("%q and %q have the same unit and window", other, b)
			}
		}
	}
	return errs
}

// HasBudgets reports whether there are budgets in the bucket, its flows, its groups, a single flow or group, or its pool.
func (b *Bucket) HasBudgets() bool {
	return b.PartBudgets || len(b.Budgets) > 0 || b.Flow != nil && len(b.Flow.Budgets) > 0 || b.Group != nil && len(b.Group.Budgets) > 0 ||
		b.Pool != nil && len(b.Pool.Budgets) > 0
}

// validateBudgets checks the budgets of the bucket, and the settings that apply to its flows and groups too.
func (b *Bucket) validateBudgets() []error {
	var f faults
	f.inRange("budget_burst", b.BudgetBurst, 0, 100)
	f.inRange("default_reservation", b.DefaultReservation, 0, MaxBudgetAmount) // 0 is 1
	if b.HasBudgets() && b.Batch.Has() {
		f.add("budgets", "are given together with batch: jobs of a batch have one answer, which does not say what each used")
	}
	return append(b.Budgets.validate("budgets"), f.errs...)
}

// BudgetUse is a budget with its charges. See [Budgets] for the window.
type BudgetUse struct {
	Budget  admission.Rate
	Charged int64     // in the window until now: reservations of unsettled jobs, and actual usage of the others
	Open    int64     // of that, reserved by jobs that are not settled
	Frees   time.Time // when it permits the departure of the job, or of a job that reserves as much as the last ones, by the clock of Redis; zero: now
}

// Free returns how much of the budget is left.
func (b BudgetUse) Free() int64 { return max(b.Budget.Count-b.Charged, 0) }

// HoldingBudget returns the budget that holds a departure back longest; nil if none does.
func HoldingBudget(uses []BudgetUse, now time.Time) *BudgetUse {
	var longest *BudgetUse
	for i := range uses {
		if u := &uses[i]; u.Frees.After(now) && (longest == nil || u.Frees.After(longest.Frees)) {
			longest = u
		}
	}
	return longest
}
