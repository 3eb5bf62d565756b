package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Many flows of a bucket with groups, in a pool, get their settings in one call, also where Redis is 50 ms away. They keep them where the bucket moves to another pool. Flows of another group stay unknown.
func TestManyFlowsOfAPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	far := must.Get(faultproxy.New(server.Addr()))(t)
	t.Cleanup(func() { _ = far.Close() })
	b := rig.Grouped("b", 1000)
	b.Flow.MustExist, b.DedupeWindow = true, 0 // it moves once nothing is left in it
	actors := func(addr, pool string) *rig.Actors {
		a := must.Get(rig.NewActors(producer.Config{Redis: rig.Connect(t, addr), Buckets: []shaper.Bucket{rig.In(rig.PoolNamed(pool), b)}, Timeout: time.Minute}))(t)
		t.Cleanup(a.Close)
		must.OK(t, a.JoinPools(t.Context()))
		return a
	}
	vendor := actors(far.Addr(), "vendor")
	const n = 64
	changes := make([]operator.FlowChange, n)
	for i := range changes {
		group := fmt.Sprint("g", i%3)
		changes[i] = operator.FlowChange{Group: &group, Flow: fmt.Sprint("f", i)}
		_ = changes[i].Patch.Put(shaper.FlowRate, "7/s")
	}
	far.SetDelay(50 * time.Millisecond)
	must.Be(t, must.Get(vendor.Op.As("anna").Bucket("b").PutFlows(t.Context(), changes))(t), n, "are written")
	far.SetDelay(0)
	check := func(a *rig.Actors) {
		t.Helper()
		for i := range n {
			info, err := a.Op.Bucket("b").Group(fmt.Sprint("g", i%3)).Flow(fmt.Sprint("f", i)).Info(t.Context())
			if err != nil || info.Own.Rate.String() != "7/s" {
				t.Fatalf("flow %d: %+v, %v", i, info.Own, err)
			}
		}
		receipts, err := a.Enqueue(t.Context(), shaper.Job{Bucket: "b", Flow: "f4", Group: "g1"}, shaper.Job{Bucket: "b", Flow: "f4", Group: "g2"})
		if err != nil || receipts[0].Refusal != nil || receipts[1].Refusal == nil || receipts[1].Refusal.Reason != shaper.ReasonUnknownFlow {
			t.Errorf("%+v, %v", receipts, err)
		}
	}
	check(vendor)
	must.Get(vendor.Op.As("anna").Bucket("b").Purge(t.Context(), operator.PurgeOptions{}))(t)
	check(actors(server.Addr(), "other"))
}
