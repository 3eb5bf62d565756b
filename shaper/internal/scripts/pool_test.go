package scripts_test

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// pair is two buckets of one pool, with jobs to send.
func pair(t tb, base *rig, p poolSettings, a, b settings, jobs int) (*rig, *rig) {
	first := base.pooled(t, "pool", "a", 1, a)
	first.configurePool(p)
	second := base.pooled(t, "pool", "b", 1, b)
	first.putMany(jobs)
	second.putMany(jobs)
	return first, second
}

// One bucket's departures move the last slot of all.
func TestPoolSpacesAllItsBuckets(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 10}, settings{rateCount: 1000}, settings{rateCount: 1000}, 5)
		c := a.claim(ask{horizon: 150_000})
		if len(c.jobs) != 1 || c.jobs[0].slot != c.now+second/10 {
			t.Fatalf("a pool that is new begins empty: %+v", c)
		}
		// It is b's turn, and it was a's.
		if got := b.claim(ask{}); len(got.jobs) != 1 || got.jobs[0].slot != c.jobs[0].slot+second/10 {
			t.Errorf("b leaves at %+v, a at %d", got.jobs, c.jobs[0].slot)
		}
		if got := b.kept(); got.busyUntil == 0 || got.weight != 1 || got.waits != 1 {
			t.Errorf("b has more to send, and the pool keeps %+v", got)
		}
	})
}

// Without its pool's settings a bucket is not configured.
func TestPoolHasToBeConfigured(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a := base.pooled(t, "pool", "a", 1, settings{})
		a.put("j")
		keys := a.keysOf(lua.Claim, "")
		if reply, err := lua.Integers(a.run(lua.Claim, keys, "d", "c", 1, 20_000, second, 0, lastChance, 1, expiredLast, 0, "a", "tundish:wake", "a", claimBytes, 0, 0, 0, 1)); err != nil || len(reply) != 1 || reply[0] != 1 {
			t.Errorf("claim answered %v, %v", reply, err)
		}
		keys = a.keysOf(lua.Reserve)
		if reply, err := lua.Integers(a.run(lua.Reserve, keys, 1, 20_000, "a", "d", 0, 0, 0)); err != nil || len(reply) != 1 || reply[0] != 1 {
			t.Errorf("reserve answered %v, %v", reply, err)
		}
	})
}

// The bound of jobs in flight is that of all buckets; of those that wait for a place the one with the lowest tag is woken.
func TestPoolInFlight(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 1000, ratePer: second / 1000, inFlight: 3}, settings{rateCount: 1000}, settings{rateCount: 1000}, 9)
		taken := a.claim(ask{}).jobs
		must.Be(t, len(taken), 3, "a took of 3 places")
		for _, r := range []*rig{a, b} {
			if c := r.claim(ask{}); len(c.jobs) != 0 || c.next != -1 {
				t.Errorf("%s: %+v of a pool that is full", r.name, c)
			}
			if k := r.kept(); k.held != 1 || k.busyUntil != 0 {
				t.Errorf("%s is not held: %+v", r.name, k)
			}
		}
		if i := b.inspect(); i.ofPool[3] != 3 || i.ofPool[4] != 3 || i.inFlight != 0 {
			t.Errorf("b's pool: %v", i.ofPool)
		}
		if j := b.job("b0"); j.ofPool[0] != 3 || j.ofPool[1] != 3 {
			t.Errorf("what holds b's job: %v", j.ofPool)
		}
		if names := a.woken(func() { a.settle(outcome{lease: taken[0], result: done}) }); names != "b" {
			t.Errorf("woken: %q", names)
		}
		// a is ahead by three, so the place is b's; and a waits for it to come.
		if c := a.claim(ask{}); len(c.jobs) != 0 || c.next <= c.now {
			t.Errorf("a took b's place, or waits for ever: %+v", c)
		}
		if c := b.claim(ask{}); len(c.jobs) != 1 {
			t.Errorf("b did not get its place: %+v", c)
		}
		// One whose lease ran out frees a place too.
		a.claim(ask{})
		b.claim(ask{})
		a.end(taken[1].id)
		if names := a.woken(func() { a.sweep(sweep{}) }); names != "a a" {
			t.Errorf("woken by a sweep: %q", names)
		}
		must.Equal(t, a.kept().inFlight, 1, "of a in flight")
	})
}

// If those do not come to whom places are left, whoever comes again takes them.
func TestPlacesThatNobodyTakes(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 1000, ratePer: second / 1000, inFlight: 2}, settings{rateCount: 1000}, settings{rateCount: 1000}, 9)
		taken := a.claim(ask{}).jobs
		b.claim(ask{}) // b waits for a place, and dies
		a.settle(outcome{lease: taken[0], result: done})
		if c := a.claim(ask{}); len(c.jobs) != 0 {
			t.Fatalf("a took b's place at once: %+v", c)
		}
		// It was a quarter of the horizon ago.
		k := a.kept()
		k.denied -= 50_000
		a.keep(k)
		if c := a.claim(ask{}); len(c.jobs) != 1 {
			t.Errorf("a place is lost: %+v", c)
		}
	})
}

// A quota of the pool counts the departures of all its buckets.
func TestPoolQuota(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 1000, ratePer: second / 10, quotas: "5 3600000000;"},
			settings{rateCount: 1000}, settings{rateCount: 1000}, 9)
		n := 0
		for range 4 {
			n += len(a.claim(ask{want: 2}).jobs) + len(b.claim(ask{want: 2}).jobs)
		}
		must.Equal(t, n, 5, "left, the quota is 5")
		if j := b.job("b8"); j.ofPool[3] == 0 {
			t.Errorf("nothing tells that the quota holds the job: %v", j.ofPool)
		}
	})
}

// A pool reserves no more flows of a bucket than may depart.
func TestPoolReserves(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		a := base.fresh(t, "a")
		a.pool = "pool"
		a.configurePool(poolSettings{rateCount: 5, inFlight: 1})
		a.configureFlows(settings{rateCount: 1000}, flowSettings{})
		for _, flow := range []string{"f1", "f2", "f3"} {
			a.enqueue(nil, entry{id: flow, flow: flow})
		}
		a.begin()
		of := a.reserve(100, 400_000)
		if of.slots > 1 || len(of.flows) != int(of.slots) {
			t.Fatalf("reserved %+v", of)
		}
		for range 3 {
			a.drain(ask{})
		}
		if n := a.kept().inFlight; n > 1 {
			t.Errorf("%d in flight", n)
		}
	})
}

// The least of a bucket's own bounds and the pool's holds.
func TestBucketIsSlowerThanItsPool(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		a, _ := pair(t, base, poolSettings{rateCount: 1000}, settings{rateCount: 10}, settings{}, 0)
		a.putMany(50)
		var slots []int64
		for range 3 {
			for _, job := range a.claim(ask{}).jobs {
				slots = append(slots, job.slot)
			}
			a.pass(50_000)
		}
		checkWindows(t, slots, settings{rateCount: 10, ratePer: second, burst: 1})
		if len(slots) == 0 {
			t.Error("nothing left")
		}
	})
}
