package shaper

import (
	"fmt"

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
