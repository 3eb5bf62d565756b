package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// A pool is told with all its buckets: those of the configuration, those that Redis knows,
// and what each has in flight.
func TestPoolDetails(t *testing.T) {
	t.Parallel()
	hour := admission.Rate{Count: 300, Per: time.Hour, Unit: admission.UnitRequests}
	pool := Pool{Name: "p", Rate: perSecond(1000), MaxInFlight: 2, Quotas: []admission.Rate{hour, perSecond(900)}, Revision: 3}
	w := newPoolWorld(t, pooled("b", 1000, 5, pool), pooled("a", 10, 1, pool), testBucket("alone", 10))
	look := func(client *actors, names ...string) PoolDetails {
		t.Helper()
		all, err := client.op.PoolDetails(t.Context(), names...)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if p := look(w.client); p.Configured || fmt.Sprint(p.Buckets) != "[{a 1 0 false} {b 5 0 false}]" || !p.LastSlot.IsZero() || p.Quotas != nil {
		t.Errorf("before it is used: %+v", p)
	}
	known, err := w.client.op.KnownPools(t.Context())
	if err != nil || len(known) != 0 || fmt.Sprint(w.client.op.Pools()) != "[p]" {
		t.Errorf("%v, %v, %v", known, w.client.op.Pools(), err)
	}
	worker := newWaiting()
	w.enqueue("b", 3, nil)
	w.run(1, worker)
	<-worker.began
	<-worker.began
	p := look(w.client)
	if !p.Configured || p.Revision != 3 || p.Rate != pool.Rate || p.Burst != 1 || p.MaxInFlight != 2 || fmt.Sprint(p.Quotas) != fmt.Sprint(pool.Quotas) {
		t.Errorf("it obeys %+v", p)
	}
	if p.InFlight != 2 || fmt.Sprint(p.Buckets) != "[{a 1 0 false} {b 5 2 true}]" || p.Now.Sub(p.LastSlot).Abs() > time.Hour || len(p.Pins) != 0 {
		t.Errorf("it has %+v", p)
	}
	// Who has none of this configured sees what Redis knows.
	stranger := w.clientOf(testBucket("alone", 10))
	if all, err := stranger.op.PoolDetails(t.Context()); err != nil || all != nil {
		t.Errorf("of no pool: %+v, %v", all, err)
	}
	if known, err := stranger.op.KnownPools(t.Context()); err != nil || fmt.Sprint(known) != "[p]" {
		t.Errorf("%v, %v", known, err)
	}
	if p := look(stranger, "p"); p.InFlight != 2 || !slices.Contains(p.Buckets, PoolBucket{Name: "b", Weight: 5, InFlight: 2, HasWork: true}) {
		t.Errorf("seen from elsewhere: %+v", p)
	}
	for range 3 {
		worker.end <- Done(200)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client.op.PoolDetails(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
