package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// allFlows goes through all pages of a list of flows, and returns the names in their order.
func allFlows(t *testing.T, b operator.Bucket, filter operator.FlowFilter, limit int) (names []string) {
	t.Helper()
	for cursor, pages := "", 0; ; pages++ {
		infos, next, err := b.FindFlows(t.Context(), filter, cursor, limit)
		if err != nil || pages > 10_000 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for i := range infos {
			names = append(names, infos[i].Flow)
		}
		if cursor = next; next == "" {
			return names
		}
	}
}

// Of many flows those whose receivers fail are found, and the fullest come first, however long a page is.
func TestFindFlows(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client() // the pipelines are longer than a pipe in memory bears
	b := rig.Bucket("b", 100)
	b.Flow = new(shaper.DefaultFlowSettings())
	b.Flow.Key = shaper.FlowKeyJob
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client, Buckets: []shaper.Bucket{b}}))(t)
	ctx, keys, bucket := t.Context(), store.BucketKeys("b"), op.Bucket("b")
	const flows = 2500
	const well, held, open = "", "@%[2]d,0,0,0,3,0,0,0,0,0,0,0,0,timeout ", "@0,0,0,1,5,0,0,0,0,0,%[2]d,0,0,http_500 "
	later := time.Now().Add(time.Hour).UnixMicro()
	states, waiting := map[string]any{}, map[string]int{}
	for i := range flows {
		name, down := fmt.Sprintf("f%04d", i), well
		switch i % 500 {
		case 3:
			down = held
		case 4:
			down = open
		}
		waiting[name] = i * 7919 % 101
		states[name] = fmt.Sprintf(down+"1 0 1/10000000 0 %[1]d 0 0 .n", waiting[name], later)
		if down == well {
			states[name] = fmt.Sprintf("1 0 1/10000000 0 %d 0 0 .n", waiting[name])
		}
	}
	// A hold that is over is none, and a flow that nothing holds is failing whose last attempts have failed.
	states["f1000"] = stored.Flow{Downstream: stored.Downstream{Failures: 2, Reason: "timeout"}.String(), Slot: 1, Rate: "1/10000000", Filled: ".n"}.String()
	waiting["f1000"] = 0
	states["f0000"] = stored.Flow{Downstream: stored.Downstream{Till: time.Now().Add(-time.Hour).UnixMicro(), Reason: "timeout"}.String(), Slot: 1, Rate: "1/10000000", Filled: ".n"}.String()
	must.OK(t, client.HSet(ctx, keys.Flows(), states).Err())
	failing := []string{"f0003", "f0004", "f0503", "f0504", "f1000", "f1003", "f1004", "f1503", "f1504", "f2003", "f2004"}
	full := make([]string, 0, flows)
	for name, n := range waiting {
		if n > 0 {
			full = append(full, name)
		}
	}
	fuller := func(a, b string) int {
		if waiting[a] != waiting[b] {
			return waiting[b] - waiting[a]
		}
		return map[bool]int{true: -1, false: 1}[a < b]
	}
	slices.SortFunc(full, fuller)
	for _, limit := range []int{1, 7, 1000} {
		got := allFlows(t, bucket, operator.FlowFilter{Failing: true}, limit)
		slices.Sort(got)
		must.Equal(t, cmp.Diff(failing, slices.Compact(got)), "", "failing flows, pages of %d (-want +got):", limit)
		of := slices.DeleteFunc(slices.Clone(failing), func(name string) bool { return waiting[name] == 0 })
		slices.SortFunc(of, fuller)
		if diff := cmp.Diff(of, allFlows(t, bucket, operator.FlowFilter{Failing: true, Order: operator.ByWaiting}, limit)); diff != "" {
			t.Errorf("failing flows, the fullest first, pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	for _, limit := range []int{37, 1000} {
		if diff := cmp.Diff(full, allFlows(t, bucket, operator.FlowFilter{Order: operator.ByWaiting}, limit)); diff != "" {
			t.Errorf("the fullest first, pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	for _, limit := range []int{1, 1000} {
		for filter, want := range map[operator.FlowFilter]int{
			{Match: "f001"}: 10, {Match: "f001", Order: operator.ByWaiting}: 10, {Match: "04", Failing: true}: 5, {Match: "04", Failing: true, Order: operator.ByWaiting}: 5, {Match: "*"}: 0, {Match: "f?", Order: operator.ByWaiting}: 0,
		} {
			got := allFlows(t, bucket, filter, limit)
			if slices.Sort(got); len(slices.Compact(got)) != want {
				t.Errorf("%+v, pages of %d: %q, want %d", filter, limit, got, want)
			}
		}
	}
	for _, filter := range []operator.FlowFilter{{Order: "name"}, {Group: new("g")}} {
		if _, _, err := bucket.FindFlows(ctx, filter, "", 10); err == nil {
			t.Errorf("%+v is no error", filter)
		}
	}
	// A look at some of them has the fullest of these, and all looks together have all.
	seen, looks, looked := map[string]bool{}, 0, 0
	for cursor := ""; looks == 0 || cursor != ""; looks++ {
		infos, n, next, err := bucket.LargestFlows(ctx, nil, cursor, 800, 1000)
		if err != nil || n < 500 && next != "" {
			t.Fatalf("look %d at %d: %v", looks, n, err)
		}
		for i := range infos {
			seen[infos[i].Flow] = true
			if i > 0 && waiting[infos[i-1].Flow] < waiting[infos[i].Flow] {
				t.Errorf("%s comes after %s", infos[i].Flow, infos[i-1].Flow)
			}
		}
		few, _, _, err := bucket.LargestFlows(ctx, nil, cursor, 800, 3)
		if err != nil || len(few) > 3 || len(few) > 0 && few[0].Flow != infos[0].Flow {
			t.Errorf("the three fullest are %+v: %v", few, err)
		}
		cursor, looked = next, looked+n
	}
	if len(seen) != len(full) || looked < flows || looks < 2 {
		t.Errorf("%d looks at %d flows have %d of %d", looks, looked, len(seen), len(full))
	}
	if _, _, _, err := bucket.LargestFlows(ctx, nil, "x", 800, 3); !errors.As(err, new(*operator.InvalidChangeError)) {
		t.Errorf("a cursor of another list: %v", err)
	}
	if _, _, err := bucket.FindFlows(ctx, operator.FlowFilter{Order: operator.ByWaiting}, "5", 10); !errors.As(err, new(*operator.InvalidChangeError)) {
		t.Errorf("a cursor of another list: %v", err)
	}
}
