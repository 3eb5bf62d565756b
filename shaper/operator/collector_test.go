package operator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
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

// Each admitted job that has not ended stands in one of three gauges: it waits or is in flight, is delayed, or is dead.
func TestCollectorOfUnfinishedJobs(t *testing.T) {
	t.Parallel()
	w := rig.NewPoolWorld(t, rig.Flowing("flows", shaper.FlowKeyJob), rig.Bucket("plain", 1))
	for bucket, flow := range map[string]string{"flows": "acme", "plain": ""} {
		w.Enqueue(bucket, 2, func(job *shaper.Job) { job.Flow = flow })
		w.Enqueue(bucket, 3, func(job *shaper.Job) { job.ID, job.Flow, job.Delay = "later-"+job.ID, flow, time.Hour })
	}
	got := rig.Scrape(t, rig.RegistryOf(operator.NewCollector(t.Context(), w.Client.Op)), "tundish_bucket_")
	for _, bucket := range []string{"flows", "plain"} {
		of := "{bucket=" + bucket + "}"
		if depth, delayed, dead := got["tundish_bucket_depth"+of], got["tundish_bucket_scheduled_jobs"+of], got["tundish_bucket_dead_letters"+of]; depth != 2 || delayed != 3 || dead != 0 {
			t.Errorf("%s: depth %v, scheduled %v, dead %v", bucket, depth, delayed, dead)
		}
	}
}

// Flows that their downstream holds are counted, and so are buckets and pools.
func TestCollectorOfDownstreams(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "vendor", Rate: rig.RateOf(10, time.Second)}
	w := rig.NewPoolWorld(t, rig.Flowing("flows", shaper.FlowKeyJob), rig.Bucket("plain", 10), rig.Pooled("pooled", 10, 1, pool))
	w.Enqueue("flows", 1, func(job *shaper.Job) { job.Flow = "f" })
	w.Enqueue("plain", 1, func(*shaper.Job) {})
	w.Enqueue("pooled", 1, func(*shaper.Job) {})
	redis, ctx := w.Server.Client(), t.Context()
	text := func(breaker int64) string {
		return stored.Downstream{Till: time.Now().Add(time.Hour).UnixMicro(), RateCount: 5000, RatePer: 1_000_000_000, Breaker: breaker, Failures: 12, ChangedAt: 1, Reason: "http_429"}.String()
	}
	redis.HSet(ctx, store.BucketKeys("flows").Count(), "held", 7, "open", 5, "half_open", 3)
	redis.HSet(ctx, store.BucketKeys("plain").Pace(), "down", text(0))
	redis.HSet(ctx, stored.PoolKey("vendor", "pace"), "down", text(1))
	scrape := func() map[string]float64 {
		found := rig.Scrape(t, rig.RegistryOf(operator.NewCollector(ctx, w.Client.Op)), "tundish_")
		maps.DeleteFunc(found, func(series string, _ float64) bool {
			return !strings.Contains(series, "holds") && !strings.Contains(series, "breakers") && !strings.Contains(series, "factor")
		})
		return found
	}
	want := map[string]float64{
		"tundish_holds{bucket=flows}": 7, "tundish_holds{bucket=plain}": 1, "tundish_holds{bucket=pooled}": 0,
		"tundish_breakers{bucket=flows,state=open}": 5, "tundish_breakers{bucket=flows,state=half-open}": 3,
		"tundish_breakers{bucket=plain,state=open}": 0, "tundish_breakers{bucket=plain,state=half-open}": 0,
		"tundish_breakers{bucket=pooled,state=open}": 0, "tundish_breakers{bucket=pooled,state=half-open}": 0,
		"tundish_bucket_adaptive_factor{bucket=plain}": 0.5, "tundish_bucket_adaptive_factor{bucket=pooled}": 1,
		"tundish_pool_holds{pool=vendor}": 0, "tundish_pool_breakers{pool=vendor,state=open}": 1, "tundish_pool_breakers{pool=vendor,state=half-open}": 0,
		"tundish_pool_adaptive_factor{pool=vendor}": 0.5,
	}
	if got := scrape(); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
