package scripts_test

import (
	"testing"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// poolNumbers is the answer of inspect_pool.lua.
type poolNumbers struct {
	now, configured, revision, rateCount, ratePer, burst, maxInFlight int64

	quotas, said, left string
	lastSlot, inFlight int64
	buckets            map[string][3]int64 // weight, in flight, 1 if it has something to send
	overrides          string              // see rig.overrides
}

func (r *rig) inspectPool() poolNumbers {
	r.t.Helper()
	a := r.answerOf(r.run(lua.InspectPool, store.ForInspectPool(r.pool), changeable...))
	p := poolNumbers{now: a.Int("now"), configured: a.Int("configured"), revision: a.Int("revision"), rateCount: a.Int("rate_count"), ratePer: a.Int("rate_per"),
		burst: a.Int("burst"), maxInFlight: a.Int("max_in_flight"), quotas: a.Text("quotas"), said: a.Text("downstream"), lastSlot: a.Int("last_slot"),
		inFlight: a.Int("in_flight"), left: a.Text("quota_use"), buckets: map[string][3]int64{}, overrides: r.overrides(a)}
	in := a.List("buckets")
	for in.Left() > 0 {
		p.buckets[in.Text()] = [3]int64{in.Int(), in.Int(), in.Int()}
	}
	r.ok(in.Err())
	return p
}

func TestInspectPool(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		first := base.pooled(t, "pool", "a", 3, settings{rateCount: 1000})
		if p := first.inspectPool(); p.configured != 0 || p.rateCount != 0 || p.lastSlot != 0 || len(p.buckets) != 0 || p.overrides != "" {
			t.Errorf("before it is configured: %+v", p)
		}
		other := base.pooled(t, "pool", "b", 1, settings{rateCount: 1000})
		first.configurePool(poolSettings{rateCount: 10, burst: 2, inFlight: 3, revision: 4, quotas: "500 60000000;"})
		first.putMany(5)
		other.putMany(1)
		c := first.claim(ask{horizon: 150_000})
		other.claim(ask{})
		p := first.inspectPool()
		if p.configured != 1 || p.revision != 4 || p.rateCount != 10 || p.ratePer != second || p.burst != 2 || p.maxInFlight != 3 || p.quotas != "500 60000000;" {
			t.Errorf("it obeys %+v", p)
		}
		if want := int64(len(c.jobs) + 1); p.inFlight != want || p.lastSlot < c.now || p.buckets["a"] != [3]int64{3, want - 1, 1} || p.buckets["b"] != [3]int64{1, 1, 0} {
			t.Errorf("%d jobs were claimed of a and 1 of b: %+v", len(c.jobs), p)
		}

		// A slot is told to its last digit, and a mark of a time that cannot be yet counts for nothing.
		k := first.kept()
		k.busyUntil = first.now() + 3600*second
		first.keep(k)
		first.ok(first.c.HSet(first.ctx, first.poolKey("pace"), "slot", "1783228800123457").Err())
		if p := first.inspectPool(); p.lastSlot != 1783228800123457 || p.buckets["a"][2] != 0 {
			t.Errorf("%+v", p)
		}
		first.run(lua.Control, []string{first.poolKey("conf"), first.poolKey("pace")}, "tundish:wake", "pool:pool", "set", "anna", "rate_count", 7, "max_in_flight", 0)
		if p := first.inspectPool(); p.overrides != "rate_count 10>7 by anna, max_in_flight 3>0 by anna" || p.rateCount != 7 || p.maxInFlight != 0 {
			t.Errorf("overridden: %+v", p)
		}
	})
}
