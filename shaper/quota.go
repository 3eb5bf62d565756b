package shaper

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
)

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

// QuotaUse is a quota with what has left of it. A quota counts in a window that is a 50th longer, by 11 s at most: see the docs.
type QuotaUse struct {
	Quota admission.Rate
	Used  int64     // departures in the window until now
	Frees time.Time // when it lets the next one go, by the clock of Redis; zero: it does so now
}

// Left is how many may leave now.
func (q QuotaUse) Left() int64 { return max(q.Quota.Count-q.Used, 0) }

// IsUp reports whether the quota lets nothing leave at that time.
func (q QuotaUse) IsUp(now time.Time) bool { return q.Frees.After(now) }

// HoldingQuota returns the quota that holds a departure longest; nil if none does.
func HoldingQuota(uses []QuotaUse, now time.Time) *QuotaUse {
	var longest *QuotaUse
	for i := range uses {
		if u := &uses[i]; u.IsUp(now) && (longest == nil || u.Frees.After(longest.Frees)) {
			longest = u
		}
	}
	return longest
}
