package producer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// All buckets of a pool say the same of it.
func TestPoolIsTheSameToAll(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "p", Rate: rig.PerSecond(100)}
	a, b := rig.Pooled("a", 10, 1, pool), rig.Pooled("b", 10, 1, pool)
	b.Pool.Burst = 1 // as where none is given
	w := rig.NewPoolWorld(t, a, b)
	for name, change := range map[string]func(p *shaper.Pool){
		"rate": func(p *shaper.Pool) { p.Rate.Count++ }, "burst": func(p *shaper.Pool) { p.Burst = 2 }, "bound": func(p *shaper.Pool) { p.MaxInFlight = 5 },
		"quotas": func(p *shaper.Pool) { p.Quotas = []admission.Rate{rig.PerSecond(9)} }, "revision": func(p *shaper.Pool) { p.Revision = 1 },
	} {
		other := rig.Pooled("b", 10, 1, pool)
		change(other.Pool)
		if _, err := rig.NewActors(producer.Config{Redis: w.Server.Client(), Buckets: []shaper.Bucket{a, other}}); err == nil || !strings.Contains(err.Error(), `pool "p": its settings differ`) {
			t.Errorf("another %s: %v", name, err)
		}
		if err := w.Client.Reconfigure([]shaper.Bucket{a, other}); err == nil {
			t.Errorf("reconfigured with another %s", name)
		}
	}
	// Its pool may change while it is used.
	faster := pool
	faster.Rate = rig.PerSecond(300)
	must.OK(t, w.Client.Reconfigure([]shaper.Bucket{rig.Pooled("a", 10, 1, faster), rig.Pooled("b", 10, 1, faster)}))
	w.Enqueue("a", 1, nil)
	if infos, err := w.Client.Op.BucketInfos(t.Context(), "a"); err != nil || infos[0].Pool.Rate != faster.Rate {
		t.Errorf("%+v, %v", infos, err)
	}
}

// A receipt tells no time that the pool of the bucket does not allow, however fast the bucket is.
func TestReceiptMindsThePool(t *testing.T) {
	t.Parallel()
	pool := shaper.Pool{Name: "p", Rate: rig.PerSecond(10)}
	quick, slow, flows := rig.Pooled("quick", 1000, 1, pool), rig.Pooled("slow", 2, 1, pool), rig.Pooled("flows", 1000, 1, pool)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	flows.Flow = &flow
	w := rig.NewPoolWorld(t, quick, slow, flows)
	jobs := func(bucket, name string, n int) []shaper.Job {
		all := make([]shaper.Job, n)
		for i := range all {
			all[i] = shaper.Job{Bucket: bucket, ID: fmt.Sprint(name, i), Flow: "f", Payload: []byte("x")}
		}
		return all
	}
	enqueue := func(jobs []shaper.Job) []shaper.Receipt {
		t.Helper()
		receipts := must.Get(w.Client.Enqueue(t.Context(), jobs...))(t)
		for i, r := range receipts {
			if r.Refusal != nil || r.State != shaper.StateQueued {
				t.Fatalf("%s: %+v", jobs[i].ID, r)
			}
		}
		return receipts
	}
	between := func(r []shaper.Receipt) time.Duration { return r[len(r)-1].ETA.Sub(r[0].ETA) }
	const pace = 100 * time.Millisecond // of the pool
	alike := enqueue(jobs("quick", "a", 5))
	if d := between(alike); d < 4*pace-time.Millisecond || d > 4*pace {
		t.Errorf("alike, the fifth leaves %s after the first: %v", d, alike)
	}
	unlike := jobs("quick", "b", 3)
	unlike[1].Cost = 2
	if r := enqueue(unlike); between(r) != 2*pace || r[0].Position != 5 || r[0].ETA.Sub(alike[4].ETA) < pace {
		t.Errorf("one by one, behind %v: %v", alike[4], r)
	}
	must.Equal(t, between(enqueue(jobs("slow", "a", 5))), 2*time.Second, "the fifth of a bucket that is slower than its pool leaves after the first")
	if d := between(enqueue(jobs("flows", "a", 5))); d < 4*pace-10*time.Millisecond || d > 4*pace {
		t.Errorf("the fifth of a flow leaves %s after the first", d)
	}
	later := jobs("quick", "c", 1)
	later[0].Delay = time.Hour
	if r, err := w.Client.Enqueue(t.Context(), later...); err != nil || r[0].State != shaper.StateScheduled || r[0].ETA.Sub(alike[0].ETA) < 59*time.Minute {
		t.Errorf("%+v, %v", r, err)
	}
	must.OK(t, w.Client.Op.As("anna").Bucket("quick").Pause(t.Context(), ""))
	for _, r := range append(enqueue(jobs("quick", "d", 2)), enqueue(append(jobs("quick", "e", 1), unlike[1]))[0]) {
		if !r.ETA.IsZero() {
			t.Errorf("a time is told while it is paused: %v", r)
		}
	}
}

// Who is refused as a bucket is full is told to come when the pool has let enough jobs go,
// however fast the bucket is, and nothing while it is paused.
func TestRetryAfterMindsThePool(t *testing.T) {
	t.Parallel()
	full := rig.Pooled("full", 1000, 1, shaper.Pool{Name: "p", Rate: rig.PerSecond(10)})
	full.Capacity, full.Shed = 10, shaper.Shed{Low: 70, Normal: 80, High: 90}
	w := rig.NewPoolWorld(t, full)
	enqueue := func(priority shaper.Priority) *shaper.Refusal {
		t.Helper()
		receipts := must.Get(w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "full", Priority: priority, Payload: []byte("x")}))(t)
		return receipts[0].Refusal
	}
	for range full.Capacity {
		if r := enqueue(shaper.PriorityCritical); r != nil {
			t.Fatalf("%+v", r)
		}
	}
	if r := enqueue(shaper.PriorityCritical); r == nil || r.Reason != shaper.ReasonBucketFull || r.RetryAfter != 100*time.Millisecond {
		t.Errorf("%+v", r)
	}
	// Jobs of low priority get in below 70 %: four must leave.
	if r := enqueue(shaper.PriorityLow); r == nil || r.RetryAfter != 400*time.Millisecond {
		t.Errorf("%+v", r)
	}
	must.OK(t, w.Client.Op.As("anna").Bucket("full").Pause(t.Context(), ""))
	if r := enqueue(shaper.PriorityCritical); r == nil || r.RetryAfter != 0 {
		t.Errorf("%+v", r)
	}
}
