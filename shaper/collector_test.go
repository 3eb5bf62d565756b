package shaper

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape is what the series of a registry are, as "name{labels}" by those whose name begins so.
func scrape(t *testing.T, registry prometheus.Gatherer, prefix string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			found[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

func registryOf(c prometheus.Collector) prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	return registry
}

// Pools of the configuration are told by their names, and no others.
func TestCollectorOfPools(t *testing.T) {
	t.Parallel()
	pool, idle := Pool{Name: "p", Rate: perSecond(1000), MaxInFlight: 2}, Pool{Name: "idle", Rate: perSecond(5)}
	w := newPoolWorld(t, pooled("a", 1000, 3, pool), pooled("b", 1000, 1, pool), pooled("c", 10, 1, idle), testBucket("alone", 10))
	other := w.clientOf(pooled("d", 10, 1, Pool{Name: "other", Rate: perSecond(1)}))
	for _, client := range []*actors{w.client, other} {
		if err := client.JoinPools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	worker := newWaiting()
	w.enqueue("a", 3, nil)
	w.run(1, worker)
	<-worker.began
	<-worker.began
	var slower BucketPatch
	if err := slower.Put(SettingRate, "50/s"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.op.Control("anna").SetPool(t.Context(), "p", slower); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, registryOf(NewCollector(t.Context(), w.client.op)), "tundish_pool_")
	if slot := got["tundish_pool_last_slot_timestamp_seconds{pool=p}"]; slot < 1e9 || slot > 1e11 {
		t.Errorf("the last slot is %f", slot)
	}
	maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.Contains(series, "_last_slot_") })
	want := map[string]float64{
		"tundish_pool_rate_per_second{pool=p}": 50, "tundish_pool_in_flight_jobs{pool=p}": 2, "tundish_pool_max_in_flight{pool=p}": 2,
		"tundish_pool_pinned_settings{pool=p}": 1, "tundish_pool_bucket_weight{bucket=a,pool=p}": 3, "tundish_pool_bucket_weight{bucket=b,pool=p}": 1,
		"tundish_pool_rate_per_second{pool=idle}": 5, "tundish_pool_in_flight_jobs{pool=idle}": 0, "tundish_pool_pinned_settings{pool=idle}": 0,
		"tundish_pool_bucket_weight{bucket=c,pool=idle}": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for range 3 {
		worker.end <- Done(200)
	}
}

// Flows and groups are counted, and never named: there may be any number of them.
func TestCollectorOfFlowsAndGroups(t *testing.T) {
	t.Parallel()
	w := newPoolWorld(t, grouped("groups", 1), flowing("flows", FlowKeyJob), testBucket("plain", 1))
	for i := range 5 {
		name := fmt.Sprint("tenant", i)
		w.enqueue("groups", 1, func(job *Job) { job.ID, job.Group, job.Flow = name, name, "f" })
		w.enqueue("flows", 1, func(job *Job) { job.ID, job.Flow = name, name })
	}
	got := scrape(t, registryOf(NewCollector(t.Context(), w.client.op)), "tundish_bucket_")
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
