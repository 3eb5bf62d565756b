package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// All buckets of a pool say the same of it.
func TestPoolIsTheSameToAll(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "p", Rate: perSecond(100)}
	a, b := pooled("a", 10, 1, pool), pooled("b", 10, 1, pool)
	b.Pool.Burst = 1 // as where none is given
	w := newPoolWorld(t, a, b)
	for name, change := range map[string]func(p *Pool){
		"rate": func(p *Pool) { p.Rate.Count++ }, "burst": func(p *Pool) { p.Burst = 2 }, "bound": func(p *Pool) { p.MaxInFlight = 5 },
		"quotas": func(p *Pool) { p.Quotas = []admission.Rate{perSecond(9)} }, "revision": func(p *Pool) { p.Revision = 1 },
	} {
		other := pooled("b", 10, 1, pool)
		change(other.Pool)
		if _, err := newActors(ClientConfig{Redis: w.server.Client(), Buckets: []Bucket{a, other}}); err == nil || !strings.Contains(err.Error(), `pool "p": its settings differ`) {
			t.Errorf("another %s: %v", name, err)
		}
		if err := w.client.Reconfigure([]Bucket{a, other}); err == nil {
			t.Errorf("reconfigured with another %s", name)
		}
	}
	// It stays where it is while it is in use, and its pool may change.
	if err := w.client.Reconfigure([]Bucket{testBucket("a", 10)}); err == nil || !strings.Contains(err.Error(), `bucket "a" cannot leave pool "p" while this process runs: restart this process`) {
		t.Errorf("it left: %v", err)
	}
	faster := pool
	faster.Rate = perSecond(300)
	if err := w.client.Reconfigure([]Bucket{pooled("a", 10, 1, faster), pooled("b", 10, 1, faster)}); err != nil {
		t.Fatal(err)
	}
	w.enqueue("a", 1, nil)
	if infos, err := w.client.op.BucketInfos(t.Context(), "a"); err != nil || infos[0].Pool.Rate != faster.Rate {
		t.Errorf("%+v, %v", infos, err)
	}
}

// A receipt tells no time that the pool of the bucket does not allow, however fast the bucket is.
func TestReceiptMindsThePool(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "p", Rate: perSecond(10)}
	quick, slow, flows := pooled("quick", 1000, 1, pool), pooled("slow", 2, 1, pool), pooled("flows", 1000, 1, pool)
	flow := DefaultFlowSettings()
	flow.Key = FlowKeyJob
	flows.Flow = &flow
	w := newPoolWorld(t, quick, slow, flows)
	jobs := func(bucket, name string, n int) []Job {
		all := make([]Job, n)
		for i := range all {
			all[i] = Job{Bucket: bucket, ID: fmt.Sprint(name, i), Flow: "f", Payload: []byte("x")}
		}
		return all
	}
	enqueue := func(jobs []Job) []Receipt {
		t.Helper()
		receipts, err := w.client.Enqueue(t.Context(), jobs...)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range receipts {
			if r.Refusal != nil || r.State != StateQueued {
				t.Fatalf("%s: %+v", jobs[i].ID, r)
			}
		}
		return receipts
	}
	between := func(r []Receipt) time.Duration { return r[len(r)-1].ETA.Sub(r[0].ETA) }
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
	if d := between(enqueue(jobs("slow", "a", 5))); d != 2*time.Second {
		t.Errorf("the fifth of a bucket that is slower than its pool leaves %s after the first", d)
	}
	if d := between(enqueue(jobs("flows", "a", 5))); d < 4*pace-10*time.Millisecond || d > 4*pace {
		t.Errorf("the fifth of a flow leaves %s after the first", d)
	}
	later := jobs("quick", "c", 1)
	later[0].Delay = time.Hour
	if r, err := w.client.Enqueue(t.Context(), later...); err != nil || r[0].State != StateScheduled || r[0].ETA.Sub(alike[0].ETA) < 59*time.Minute {
		t.Errorf("%+v, %v", r, err)
	}
	if err := w.client.op.Control("anna").Pause(t.Context(), "quick", ""); err != nil {
		t.Fatal(err)
	}
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
	full := pooled("full", 1000, 1, Pool{Name: "p", Rate: perSecond(10)})
	full.Capacity = 10
	w := newPoolWorld(t, full)
	enqueue := func(priority Priority) *Refusal {
		t.Helper()
		receipts, err := w.client.Enqueue(t.Context(), Job{Bucket: "full", Priority: priority, Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		return receipts[0].Refusal
	}
	for range full.Capacity {
		if r := enqueue(PriorityCritical); r != nil {
			t.Fatalf("%+v", r)
		}
	}
	if r := enqueue(PriorityCritical); r == nil || r.Reason != ReasonBucketFull || r.RetryAfter != 100*time.Millisecond {
		t.Errorf("%+v", r)
	}
	// Jobs of low priority get in below 70 %: four must leave.
	if r := enqueue(PriorityLow); r == nil || r.RetryAfter != 400*time.Millisecond {
		t.Errorf("%+v", r)
	}
	if err := w.client.op.Control("anna").Pause(t.Context(), "full", ""); err != nil {
		t.Fatal(err)
	}
	if r := enqueue(PriorityCritical); r == nil || r.RetryAfter != 0 {
		t.Errorf("%+v", r)
	}
}
