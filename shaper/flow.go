package shaper

import (
	"fmt"
	"strings"

	"github.com/tundish-io/tundish/admission"
)

// Bounds of flows and quotas.
const (
	MaxQuotas     = 4
	MaxQuotaCount = 100_000 // departures that are remembered one by one, some ten bytes each
	MaxFlows      = 10_000_000
	MaxWeight     = 1000

	// DefaultMaxFlows is how many flows of a bucket may have jobs at a time where
	// no other number is given.
	DefaultMaxFlows = 1_000_000
)

// What may name the flow of a job.
const (
	FlowKeyJob    = "job"     // its field flow, required then
	FlowKeyHost   = "host"    // the host of its url, or of DefaultURL, with a port that is not the scheme's own
	FlowKeyCaller = "caller"  // who enqueues it: Identity.Caller
	FlowKeyHeader = "header:" // and the name: a header of the request that enqueues it, in Identity.Headers
)

// FlowSettings part a bucket into flows: each is a FIFO of its own, with its own
// bounds under the bucket's. A flow is there as long as it has jobs and as long as its
// pace says anything; it costs nothing else. The flow that has waited longest goes first, and one
// that its own bounds hold back delays nobody.
type FlowSettings struct {
	// Key is what names the flow: one of the FlowKey constants.
	Key string

	// DefaultURL is where jobs go that name no URL; of use with FlowKeyHost only.
	DefaultURL string

	Rate        admission.Rate   // of each flow; zero: none but the bucket's
	Burst       int64            // of a flow with a rate: departures at once after a pause
	Capacity    int64            // unfinished jobs of a flow; 0: the bucket's bound only
	MaxInFlight int64            // leases of a flow at a time; 0: the bucket's bound only
	Quotas      []admission.Rate // as Bucket.Quotas, for each flow
	MaxFlows    int64            // flows that have jobs at a time
}

// DefaultFlowSettings returns the defaults. Key has none.
func DefaultFlowSettings() FlowSettings { return FlowSettings{Burst: 1, MaxFlows: DefaultMaxFlows} }

// validate returns the faults, each with the key of the configuration.
func (f *FlowSettings) validate() []error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("flow.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	header, isHeader := strings.CutPrefix(f.Key, FlowKeyHeader)
	switch {
	case f.Key == "":
		fail("key", "is missing: say what names the flow of a job: job, host, caller or header:X-Name")
	case isHeader && header == "", !isHeader && f.Key != FlowKeyJob && f.Key != FlowKeyHost && f.Key != FlowKeyCaller:
		fail("key", "%q: want job, host, caller or header:X-Name", f.Key)
	}
	if !f.Rate.IsZero() {
		if err := f.Rate.Validate(); err != nil {
			fail("rate", "%v", err)
		} else if f.Rate.Unit != admission.UnitRequests {
			fail("rate", "%q: only requests are paced in this version, not %s", f.Rate, f.Rate.Unit)
		} else if float64(f.Burst)/f.Rate.PerSecond() > maxBurstTime.Seconds() {
			fail("burst", "%d: at %s it takes more than %d days to come back", f.Burst, f.Rate, int(maxBurstTime.Hours()/24))
		}
	}
	for _, bound := range []struct {
		key              string
		value, low, high int64
	}{
		{"burst", f.Burst, 1, MaxBurst},
		{"capacity", f.Capacity, 0, MaxCapacity},
		{"max_in_flight", f.MaxInFlight, 0, MaxCapacity},
		{"max_flows", f.MaxFlows, 1, MaxFlows},
	} {
		if bound.value < bound.low || bound.value > bound.high {
			fail(bound.key, "%d: want %d to %d", bound.value, bound.low, bound.high)
		}
	}
	return append(errs, validateQuotas("flow.quotas", f.Quotas)...)
}

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

// quotasText is what the scripts read: "count microseconds;" for each.
func quotasText(quotas []admission.Rate) string {
	var text strings.Builder
	for _, quota := range quotas {
		fmt.Fprintf(&text, "%d %d;", quota.Count, quota.Per.Microseconds())
	}
	return text.String()
}

// fields are those of the hash conf that hold the settings. A bucket without flows
// has them too, so that they are taken back.
func (f *FlowSettings) fields() []any {
	var none FlowSettings
	on := 1
	if f == nil {
		f, on = &none, 0
	}
	return []any{
		"flows", on, "flow_rate_count", f.Rate.Count, "flow_rate_per", f.Rate.Per.Microseconds(), "flow_burst", f.Burst,
		"flow_capacity", f.Capacity, "flow_max_in_flight", f.MaxInFlight, "flow_quotas", quotasText(f.Quotas), "max_flows", f.MaxFlows,
	}
}

func errFlowsChanged(on bool, jobs int64) error {
	was, is := "with", "without"
	if on {
		was, is = is, was
	}
	return fmt.Errorf("holds %d jobs that were queued %s flows, and is configured %s: drain or purge it first", jobs, was, is)
}
