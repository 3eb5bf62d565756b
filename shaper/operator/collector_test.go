package operator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Flows and groups are counted, and never named: there may be any number of them.
func TestCollectorOfFlowsAndGroups(t *testing.T) {
	t.Parallel()
	w := rig.NewPoolWorld(t, rig.Grouped("groups", 1), rig.Flowing("flows", shaper.FlowKeyJob), rig.Bucket("plain", 1))
	for i := range 5 {
		name := fmt.Sprint("tenant", i)
		w.Enqueue("groups", 1, func(job *shaper.Job) { job.ID, job.Group, job.Flow = name, name, "f" })
		w.Enqueue("flows", 1, func(job *shaper.Job) { job.ID, job.Flow = name, name })
	}
	got := rig.Scrape(t, rig.RegistryOf(operator.NewCollector(t.Context(), w.Client.Op)), "tundish_bucket_")
	for series, want := range map[string]float64{
		"tundish_bucket_flows{bucket=flows}": 5, "tundish_bucket_flows_waiting{bucket=flows}": 5, "tundish_bucket_flows{bucket=groups}": 5,
		"tundish_bucket_groups{bucket=groups}": 5, "tundish_bucket_groups_waiting{bucket=groups}": 5,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (%t), want %v", series, value, ok, want)
		}
	}
	for series := range got {
		if strings.Contains(series, "tenant") || strings.Contains(series, "_flows") && strings.Contains(series, "plain") ||
			strings.Contains(series, "_groups") && !strings.Contains(series, "=groups") || series == "tundish_bucket_flows_waiting{bucket=groups}" {
			t.Errorf("there is %s in %v", series, slices.Sorted(maps.Keys(got)))
		}
	}
}
