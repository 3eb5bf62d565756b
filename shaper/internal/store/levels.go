package store

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// HasFlows reports whether the bucket has flows, as this process knows it.
func (b *Bucket) HasFlows() bool { return b.Levels() != codec.LevelsNone }

func errFlowsChanged(levels int, jobs, was int64) error {
	return fmt.Errorf("holds %d jobs that were queued %s, and is configured %s: drain or purge it first",
		jobs, levelsText(int(was)), levelsText(levels))
}

func levelsOf(b *shaper.Bucket) int {
	switch {
	case b.Flow == nil:
		return codec.LevelsNone
	case b.Group == nil:
		return codec.LevelsFlows
	default:
		return codec.LevelsGroups
	}
}

// levelsText says it for people.
func levelsText(levels int) string {
	return [...]string{"without flows", "with flows", "with flows in groups"}[levels]
}

// partFields are the fields of the hash conf that hold the settings of flows and groups. A bucket without
// them has these fields too, so that they are taken back.
func partFields(b *shaper.Bucket) []any {
	flows, groups := shaper.FlowSettings{}, shaper.GroupSettings{}
	if b.Flow != nil {
		flows = *b.Flow
	}
	if b.Group != nil {
		groups = *b.Group
	}
	return []any{
		"flows", levelsOf(b), "max_flows", flows.MaxFlows, "max_per_caller", flows.EffectiveMaxPerCaller(),
		"flow_rate_count", flows.Rate.Count, "flow_rate_per", flows.Rate.Per.Microseconds(), "flow_burst", flows.Burst,
		"flow_capacity", flows.Capacity, "flow_scheduled_capacity", flows.ScheduledCapacity,
		"flow_max_in_flight", flows.MaxInFlight, "flow_quotas", codec.QuotasText(flows.Quotas),
		"group_rate_count", groups.Rate.Count, "group_rate_per", groups.Rate.Per.Microseconds(), "group_burst", groups.Burst,
		"group_capacity", groups.Capacity, "group_scheduled_capacity", groups.ScheduledCapacity,
		"group_max_in_flight", groups.MaxInFlight, "group_quotas", codec.QuotasText(groups.Quotas),
	}
}

// Levels is how many levels the bucket has, as this process knows it: it cannot change.
func (b *Bucket) Levels() int { return b.Keys.Levels }
