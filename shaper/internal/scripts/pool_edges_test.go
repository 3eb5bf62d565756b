package scripts_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// Asked again with the same claim id, it answers the same, and nothing departs from the pool a second time.
func TestPoolClaimTwice(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a, _ := pair(t, base, poolSettings{rateCount: 1000, quotas: "500 60000000;"}, settings{rateCount: 1000}, settings{}, 20)
		first := a.claim(ask{claim: "once", want: 5})
		before := a.ofPool()
		if again := a.claim(ask{claim: "once", want: 5}); again.ids() != first.ids() || len(first.jobs) != 5 {
			t.Errorf("%q, then %q", first.ids(), again.ids())
		}
		if after := a.ofPool(); after != before {
			t.Errorf("the pool was %s, and is %s", before, after)
		}
		a.settle(outcome{lease: first.jobs[0], result: done})
		before = a.ofPool()
		a.settle(outcome{lease: first.jobs[0], result: done})
		if after := a.ofPool(); after != before {
			t.Errorf("settled twice, the pool was %s, and is %s", before, after)
		}
	})
}

// ofPool is all that the pool keeps, as text.
func (r *rig) ofPool() string {
	r.t.Helper()
	pace := must.Get(r.c.HGetAll(r.ctx, r.poolKey("pace")).Result())(r.t)
	buckets := must.Get(r.c.HGetAll(r.ctx, r.poolKey("buckets")).Result())(r.t)
	departed := must.Get(r.c.LRange(r.ctx, r.poolKey("departed"), 0, -1).Result())(r.t)
	return fmt.Sprint(pace, buckets, departed)
}

// What lies further ahead than it can is from before the clock stepped back, and is cut.
func TestPoolWhereTheClockSteppedBack(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 100}, settings{rateCount: 1000}, settings{rateCount: 1000}, 50)
		a.claim(ask{})
		b.claim(ask{})
		const hour = 3600 * second
		for _, field := range []string{"slot", "last", "clock"} {
			a.ok(a.c.HIncrBy(a.ctx, a.poolKey("pace"), field, hour).Err())
		}
		k := b.kept()
		k.busyUntil, k.denied = k.busyUntil+hour, a.now()+hour
		b.keep(k)
		own := a.kept()
		own.denied = a.now() + hour
		a.keep(own)
		c := a.claim(ask{})
		if c.next <= 0 || c.next > c.now+second {
			t.Errorf("asked again in %d µs", c.next-c.now)
		}
		if slot, err := a.c.HGet(a.ctx, a.poolKey("pace"), "slot").Int64(); err != nil || slot > c.now+second/2 {
			t.Errorf("the last slot is %d µs ahead, %v", slot-c.now, err)
		}
	})
}

// Times are kept to the last digit, and virtual times too, however long a pool is busy.
func TestPoolKeepsDigits(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		const renewed = 1_000_000_000_000 // as in pool.lua
		all := sharing(t, base, poolSettings{rateCount: 100}, settings{rateCount: 100_000, capacity: 3000, inFlight: 100_000}, 3, 1)
		a, b := all[0], all[1]
		share(t, all, second, 100)
		for _, s := range all {
			k := s.kept()
			k.tag += renewed
			s.keep(k)
		}
		a.ok(a.c.HIncrBy(a.ctx, a.poolKey("pace"), "virtual", renewed).Err())
		a.sweep(sweep{}) // which subtracts it again
		apart := a.kept().tag - b.kept().tag
		from := len(a.slots)
		share(t, all, 4*second, 100)
		if k := a.kept(); k.tag > renewed/2 || b.kept().tag > renewed/2 {
			t.Errorf("virtual times %d and %d", k.tag, b.kept().tag)
		}
		if more := apart - (a.kept().tag - b.kept().tag); max(more, -more) > 21*second {
			t.Errorf("they were %d apart, and that changed by %d", apart, more)
		}
		if n := len(a.slots) - from; n < 280 || n > 320 {
			t.Errorf("%d slots of 300", n)
		}
		text := must.Get(a.c.HGet(a.ctx, a.poolKey("pace"), "slot").Result())(a.t)
		must.Equal(t, must.Get(strconv.ParseInt(text, 10, 64))(t), max(a.slots[len(a.slots)-1], b.slots[len(b.slots)-1]), "the last slot is %q", text)
	})
}

// A pool goes on where the server has no memory left.
func TestPoolOutOfMemory(t *testing.T) {
	t.Parallel()
	a, b := pair(t, realRig(t), poolSettings{rateCount: 100_000, inFlight: 5, quotas: "1000 60000000;"},
		settings{rateCount: 100_000}, settings{rateCount: 100_000}, 30)
	a.fill()
	left := map[*rig]int{a: 30, b: 30}
	for round := 0; left[a]+left[b] > 0; round++ {
		if round == 5000 {
			t.Fatalf("%d and %d are left", left[a], left[b])
		}
		for _, r := range []*rig{a, b} {
			for _, job := range r.claim(ask{}).jobs {
				r.settle(outcome{lease: job, result: done})
				left[r]--
			}
			r.sweep(sweep{})
		}
	}
}

// A bucket of no pool has nothing to do with one: no key of a pool comes into being.
func TestBucketOfNoPool(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put(numbered(5)...)
		for _, job := range r.claim(ask{}).jobs {
			r.settle(outcome{lease: job, result: done})
		}
		r.sweep(sweep{})
		if keys, err := r.c.Keys(r.ctx, "*:p:*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("%q, %v", keys, err)
		}
		must.Equal(t, r.inspect().ofPool, [7]int64{}, "its pool is")
	})
}

// A bucket that left the configuration with jobs in flight does not hold their places for ever.
func TestPoolForgetsWhoLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 1000, ratePer: second / 1000, inFlight: 2}, settings{rateCount: 1000}, settings{rateCount: 1000}, 5)
		a.claim(ask{want: 2})
		for _, test := range []struct{ ago, want int64 }{{3600 * second, 0}, {3901 * second, 2}} {
			k := a.kept()
			k.seen = a.now() - test.ago
			a.keep(k)
			b.pass(2 * second)
			b.sweep(sweep{}) // looks at all buckets of the pool
			if c := b.claim(ask{}); int64(len(c.jobs)) != test.want {
				t.Errorf("seen %d s ago: %d jobs, want %d", test.ago/second, len(c.jobs), test.want)
			}
		}
		// Its sweep tells that they are there.
		a.sweep(sweep{})
		if c := b.claim(ask{}); len(c.jobs) != 0 || c.next != -1 {
			t.Errorf("%d in flight, and %+v", b.inspect().ofPool[4], c)
		}
	})
}
