package shaper

import "fmt"

// hasFlows reports whether the bucket has flows, as this process knows it.
func (b *bucketState) hasFlows() bool { return b.levels() != levelsNone }

func errFlowsChanged(levels int, jobs, was int64) error {
	return fmt.Errorf("holds %d jobs that were queued %s, and is configured %s: drain or purge it first",
		jobs, levelsText(int(was)), levelsText(levels))
}

func levelsOf(b *Bucket) int {
	switch {
	case b.Flow == nil:
		return levelsNone
	case b.Group == nil:
		return levelsFlows
	default:
		return levelsGroups
	}
}

// levelsText says it for people.
func levelsText(levels int) string {
	return [...]string{"without flows", "with flows", "with flows in groups"}[levels]
}

// partFields are the fields of the hash conf that hold the settings of flows and groups. A bucket without
// them has these fields too, so that they are taken back.
func partFields(b *Bucket) []any {
	flows, groups := FlowSettings{}, GroupSettings{}
	if b.Flow != nil {
		flows = *b.Flow
	}
	if b.Group != nil {
		groups = *b.Group
	}
	return []any{
		"flows", levelsOf(b), "max_flows", flows.MaxFlows,
		"flow_rate_count", flows.Rate.Count, "flow_rate_per", flows.Rate.Per.Microseconds(), "flow_burst", flows.Burst,
		"flow_capacity", flows.Capacity, "flow_max_in_flight", flows.MaxInFlight, "flow_quotas", quotasText(flows.Quotas),
		"group_rate_count", groups.Rate.Count, "group_rate_per", groups.Rate.Per.Microseconds(), "group_burst", groups.Burst,
		"group_capacity", groups.Capacity, "group_max_in_flight", groups.MaxInFlight, "group_quotas", quotasText(groups.Quotas),
	}
}

// levels is how many levels the bucket has, as this process knows it: it cannot change.
func (b *bucketState) levels() int { return b.keys.levels }
