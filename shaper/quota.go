package shaper

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// Quotas bound how many jobs depart in sliding windows, such as "1000/d". A flow or a group may have its own, in place of the quotas for all. A changed
// quota counts the departures that were counted before; without a quota, none are.
type Quotas []admission.Rate

// noQuotas is the text of an empty list.
const noQuotas = "none"

// String returns a text such as "1000/d, 100/h", or "none" for an empty list.
func (quotas Quotas) String() string {
	texts := make([]string, len(quotas))
	for i, quota := range quotas {
		texts[i] = quota.String()
	}
	return cmp.Or(strings.Join(texts, ", "), noQuotas)
}

// MarshalText writes the text of [Quotas.String].
func (quotas Quotas) MarshalText() ([]byte, error) { return []byte(quotas.String()), nil }

// UnmarshalText reads the text of [Quotas.String]. It checks only the syntax; [Quotas.Validate] checks the values.
func (quotas *Quotas) UnmarshalText(text []byte) error {
	list := Quotas{}
	if string(text) == noQuotas {
		*quotas = list
		return nil
	}
	for one := range strings.SplitSeq(string(text), ",") {
		quota, err := admission.ParseRate(strings.TrimSpace(one))
		if err != nil {
			return err //nolint:wrapcheck // it says which rate it is
		}
		list = append(list, quota)
	}
	*quotas = list
	return nil
}

// Validate reports every fault of the quotas, joined, or nil.
func (quotas Quotas) Validate() error { return errors.Join(validateQuotas("quotas", quotas)...) }

func validateQuotas(key string, quotas []admission.Rate) []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(key+": "+format, args...)) }
	if len(quotas) > MaxQuotas {
		fail("%d windows: want at most %d", len(quotas), MaxQuotas)
	}
	for _, quota := range quotas {
		if err := quota.Validate(); err != nil {
			fail("%v", err)
		} else if quota.Unit != admission.UnitRequests {
			fail("%q: only requests are counted in this version, not %s", quota, quota.Unit)
		} else if quota.Count > MaxQuotaCount {
			fail("%q: want at most %d a window: a rate bounds more", quota, MaxQuotaCount)
		} else if quota.Per > MaxDedupeWindow {
			fail("%q: want a window of at most %s", quota, MaxDedupeWindow)
		}
	}
	return errs
}

// QuotaUse is a quota with its departures. A quota counts in a window that is 2 % longer, at most 11 s: see the docs.
type QuotaUse struct {
	Quota admission.Rate
	Used  int64     // departures in the window until now
	Frees time.Time // when it permits the next departure, by the clock of Redis; zero: now
}

// Left returns how many departures remain now.
func (q QuotaUse) Left() int64 { return max(q.Quota.Count-q.Used, 0) }

// IsUp reports whether the quota is used up at that time.
func (q QuotaUse) IsUp(now time.Time) bool { return q.Frees.After(now) }

// HoldingQuota returns the quota that holds a departure back longest; nil if none does.
func HoldingQuota(uses []QuotaUse, now time.Time) *QuotaUse {
	var longest *QuotaUse
	for i := range uses {
		if u := &uses[i]; u.IsUp(now) && (longest == nil || u.Frees.After(longest.Frees)) {
			longest = u
		}
	}
	return longest
}
