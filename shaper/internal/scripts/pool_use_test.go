package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// busyPool is buckets of these rates in one pool, with jobs for so long. Their dispatchers look as far ahead as those of
// package shaper do, with a round trip of lead.
func busyPool(t tb, base *rig, p poolSettings, length, lead int64, rates, weights []int64) []*sharer {
	all := make([]*sharer, len(rates))
	pool := fmt.Sprint("pool", nextClaim())
	for i, rate := range rates {
		r := base.pooled(t, pool, fmt.Sprint(pool, ".", i), weights[i%len(weights)], settings{rateCount: rate, capacity: 100_000, inFlight: 100_000})
		if i == 0 {
			r.configurePool(p)
		}
		slower := min(rate, p.rateCount)
		r.putMany(int(slower*length*15/10/second) + 10)
		all[i] = &sharer{rig: r, lead: lead, horizon: min(max(20_000, 16*second/slower, 4*lead), 200_000), late: func() int64 { return 1000 + lead/2 }}
	}
	return all
}

// checkPool checks that the slots of the pool obey its rate, and those of each bucket its own.
func checkPool(t tb, all []*sharer, p poolSettings, rates []int64) {
	var slots []int64
	for i, s := range all {
		slots = append(slots, s.slots...)
		checkWindows(t, s.slots, settings{rateCount: rates[i], ratePer: second, burst: 1})
	}
	checkWindows(t, slots, settings{rateCount: p.rateCount, ratePer: second, burst: max(p.burst, 1)})
}

func repeated(n int, rate int64) []int64 {
	rates := make([]int64, n)
	for i := range rates {
		rates[i] = rate
	}
	return rates
}

// What the bounds of the pool and of its buckets allow is used, also where the buckets are slower than the pool: no slot is lost
// between those of a slow one.
func TestPoolIsUsedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		pool   poolSettings
		rates  []int64
		lead   int64
		length int64
		want   int64 // departures a second at least
	}{
		{name: "two of 300/s in 500/s", pool: poolSettings{rateCount: 500}, rates: []int64{300, 300}, want: 490},
		{name: "two of 300/s in 500/s with a burst", pool: poolSettings{rateCount: 500, burst: 3}, rates: []int64{300, 300}, want: 490},
		{name: "two of 300/s in 500/s, far", pool: poolSettings{rateCount: 500}, rates: []int64{300, 300}, lead: 50_000, want: 490},
		{name: "60 of 40/s in 2000/s", pool: poolSettings{rateCount: 2000}, rates: repeated(60, 40), want: 1960},
		{name: "60 of 40/s in 2000/s, far", pool: poolSettings{rateCount: 2000}, rates: repeated(60, 40), lead: 50_000, want: 1960},
		{name: "60 of 30/s in 2000/s", pool: poolSettings{rateCount: 2000}, rates: repeated(60, 30), want: 1760},
		{name: "60 of 1000/s in 10000/s", pool: poolSettings{rateCount: 10_000}, rates: repeated(60, 1000), length: second / 2, want: 9800},
		{name: "one of 300/s, one that takes what it gets", pool: poolSettings{rateCount: 500}, rates: []int64{300, 1000}, want: 490},
		{name: "one that is nearly as fast, alone", pool: poolSettings{rateCount: 500}, rates: []int64{490}, want: 488},
		{name: "one that is nearly as fast, one slow", pool: poolSettings{rateCount: 500}, rates: []int64{490, 5}, want: 475},
		{name: "the same with a burst", pool: poolSettings{rateCount: 500, burst: 2}, rates: []int64{490, 5}, want: 485},
		{name: "many slow, two fast", pool: poolSettings{rateCount: 500}, rates: append(repeated(20, 5), 1000, 1000), want: 490},
		{name: "many slow, two fast, far", pool: poolSettings{rateCount: 500}, rates: append(repeated(20, 5), 1000, 1000), lead: 50_000, want: 490},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onReal(t, func(t *testing.T, base *rig) {
				if c.length == 0 {
					c.length = 2 * second
				}
				all := busyPool(t, base, c.pool, 3*c.length/2, c.lead, c.rates, []int64{1})
				share(t, all, c.length/2, 100)
				from := base.now()
				share(t, all, c.length, 100)
				to, got := base.now(), int64(0)
				for _, s := range all {
					got += within(s.slots, from, to)
				}
				if got = got * second / (to - from); got < c.want {
					t.Errorf("%d/s, want at least %d/s", got, c.want)
				}
				checkPool(t, all, c.pool, c.rates)
			})
		})
	}
}

// Whatever the rates and the weights, no window has more than its bounds allow, and most of what they allow is used.
func TestPoolOfAnyBuckets(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			pool := poolSettings{rateCount: rapid.Int64Range(30, 1500).Draw(rt, "rate"), burst: rapid.Int64Range(1, 3).Draw(rt, "burst")}
			rates := rapid.SliceOfN(rapid.Int64Range(pool.rateCount/20+1, 3*pool.rateCount/2), 1, 5).Draw(rt, "rates")
			weights := rapid.SliceOfN(rapid.Int64Range(1, 10), len(rates), len(rates)).Draw(rt, "weights")
			all := busyPool(rt, base, pool, 2*second, rapid.Int64Range(0, 20_000).Draw(rt, "lead"), rates, weights)
			chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
			for _, s := range all {
				s.late = func() int64 { return chance.Int64N(3000) }
			}
			share(rt, all, second/2, 100)
			from := base.now()
			share(rt, all, second, 100)
			to, got, allowed := base.now(), int64(0), int64(0)
			for i, s := range all {
				got += within(s.slots, from, to)
				allowed += rates[i]
			}
			checkPool(rt, all, pool, rates)
			allowed = min(allowed, pool.rateCount) * (to - from) / second
			// A bucket that finds the slots at its time taken departs later, and never makes up for it: its own rate bounds that. The lowest of
			// 1,350 draws used 86 %, and 76 % without a burst.
			least := int64(78)
			if pool.burst == 1 { // what is left between two slots may be too short for another one
				least = 65
			}
			if got < allowed*least/100-3 {
				rt.Fatalf("%d of %d slots are used", got, allowed)
			}
		})
	})
}

// A claim looks at its own bucket, however many are busy.
func TestPoolClaimLooksAtOneBucket(t *testing.T) {
	t.Parallel()
	calls := map[int]int64{}
	for _, buckets := range []int{3, 150} {
		base := realRig(t)
		all := busyPool(t, base, poolSettings{rateCount: 10_000, inFlight: 100_000, quotas: "1000000 60000000;"}, second/10, 0, repeated(buckets, 10_000), []int64{1, 2})
		share(t, all, 100_000, 3)
		base.ok(base.c.ConfigResetStat(base.ctx).Err())
		claims := 0
		for _, s := range all[:3] {
			s.claim(ask{want: 3})
			claims++
		}
		stats := must.Get(base.c.Info(base.ctx, "commandstats").Result())(base.t)
		for line := range strings.Lines(stats) {
			var n int64
			name, rest, _ := strings.Cut(line, ":calls=")
			if _, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n); err == nil && name != "cmdstat_config|resetstat" {
				calls[buckets] += n
			}
			if strings.HasPrefix(line, "cmdstat_hgetall") {
				t.Errorf("a claim reads all buckets: %s", line)
			}
		}
	}
	if calls[150] > calls[3]+30 {
		t.Errorf("three claims make %d calls among 150 buckets, and %d among three", calls[150], calls[3])
	}
}

// Sums that are lost by hand come back with the next sweep.
func TestPoolHealsItself(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		a, b := pair(t, base, poolSettings{rateCount: 1000, inFlight: 4}, settings{rateCount: 1000}, settings{rateCount: 1000}, 9)
		a.claim(ask{want: 3})
		b.claim(ask{want: 1})
		for range 2 {
			a.claim(ask{})
			b.claim(ask{}) // both wait for a place
		}
		a.ok(a.c.Del(a.ctx, a.poolKey("pace"), a.poolKey("held"), a.poolKey("busy")).Err())
		a.pass(2 * second)
		a.sweep(sweep{})
		pace := must.Get(a.c.HGetAll(a.ctx, a.poolKey("pace")).Result())(a.t)
		if pace["in_flight"] != "4" || pace["waiting"] != "2" {
			t.Errorf("the sums are %v", pace)
		}
		held := must.Get(a.c.ZRange(a.ctx, a.poolKey("held"), 0, -1).Result())(a.t)
		must.Equal(t, len(held), 2, "held are %q", held)
		if c := b.claim(ask{}); len(c.jobs) != 0 || c.next != -1 {
			t.Errorf("a place too many: %+v", c)
		}
	})
}

// What a slow bucket leaves between its slots is for the others; not after the clock stepped, or the rate changed: then it could
// be used twice.
func TestPoolGaps(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, test := range []struct {
			name   string
			change func(r *rig)
			taken  bool
		}{
			{name: "nothing", change: func(*rig) {}, taken: true},
			{name: "step back", change: func(r *rig) { r.pass(-20_000) }},
			{name: "rate", change: func(r *rig) { r.configurePool(poolSettings{rateCount: 90, revision: 1}) }},
		} {
			pool := fmt.Sprint("pool", nextClaim())
			slow := base.pooled(t, pool, pool+".slow", 1, settings{rateCount: 20})
			slow.configurePool(poolSettings{rateCount: 100})
			fast := base.pooled(t, pool, pool+".fast", 1, settings{rateCount: 1000})
			slow.putMany(9)
			fast.putMany(9)
			slow.claim(ask{horizon: 60_000}) // begins the pace
			slow.pass(10_000)
			left := slow.claim(ask{horizon: 150_000}).jobs
			if len(left) == 0 {
				t.Fatalf("%s: the slow one has no slots", test.name)
			}
			last := left[len(left)-1].slot
			test.change(fast)
			between := 0
			for _, job := range fast.claim(ask{}).jobs {
				if job.slot < last {
					between++
				}
			}
			must.Equal(t, (between > 0), test.taken, "%s: %d slots between those of the slow one are taken", test.name, between)
		}
	})
}

// A pool whose slots are further apart than its buckets look ahead, and that was idle while several had work: none of them puts its slot off
// for the others again and again.
func TestSlowPoolGoesOnAfterAPause(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		var all []*sharer
		for name, weight := range map[string]int64{"a": 10, "b": 1} {
			s := &sharer{rig: base.pooled(t, "slow", name, weight, settings{rateCount: 2}), horizon: 200_000, lead: 1000, late: func() int64 { return 0 }}
			s.putMany(30)
			all = append(all, s)
		}
		all[0].configurePool(poolSettings{rateCount: 2})
		share(t, all, 2*second, 10)
		all[0].pass(3 * second)
		now := all[0].now()
		for _, s := range all {
			k := s.kept()
			k.credit, k.waits, k.busyUntil, k.inFlight = 950, 1, now+20*second, 0
			s.keep(k)
			s.slots = nil
		}
		const length = 10 * second
		share(t, all, length, 10)
		got := within(all[0].slots, now, now+length) + within(all[1].slots, now, now+length)
		if want := int64(2 * length / second); got < want-1 {
			t.Errorf("%d of %d slots were used", got, want)
		}
	})
}

// A quota of the pool that its rate just fits has each departure wait for the margin of the quota. Nobody can use the time before, so a slot is not
// put off to the next one of its row for the sake of others.
func TestPoolWhoseQuotaIsItsRate(t *testing.T) {
	onBothForLong(t, func(t *testing.T, base *rig) {
		for _, busy := range []int{1, 2} { // with both, and with one of them alone later
			var all []*sharer
			for i, name := range []string{"a", "b"} {
				s := &sharer{rig: base.pooled(t, fmt.Sprint("strict", busy), name, 1, settings{rateCount: 2}), horizon: 200_000, lead: 1000, late: func() int64 { return 0 }}
				jobs := 65
				if i >= busy {
					jobs = 5
				}
				s.putMany(jobs)
				all = append(all, s)
			}
			all[0].configurePool(poolSettings{rateCount: 2, quotas: "2 1000000;"})
			share(t, all, 10*second, 10)
			const length = 20 * second
			now := all[0].now()
			share(t, all, length, 10)
			got := within(all[0].slots, now, now+length) + within(all[1].slots, now, now+length)
			if want := int64(2 * length * 100 / 102 / second); got < want-1 || got > want+1 {
				t.Errorf("%d buckets: %d of %d slots were used", busy, got, want)
			}
		}
	})
}

// A pool whose slots are further apart than buckets look ahead is shared by weight, too.
func TestSlowPoolIsSharedByWeight(t *testing.T) {
	rates := []int64{1, 10}
	if redistest.Soak {
		rates = []int64{1, 2, 4, 10}
	}
	onBothForLong(t, func(t *testing.T, base *rig) {
		for _, weights := range [][]int64{{3, 1}, {1, 3}, {10, 1}, {1, 1}, {5, 2, 1}} {
			for _, rate := range rates {
				all := sharing(t, base, poolSettings{rateCount: rate}, settings{rateCount: rate, capacity: 500, inFlight: 1000}, weights...)
				for _, s := range all {
					s.horizon, s.lead = 200_000, 1000
				}
				const slots = 160
				began, length := all[0].now(), slots*second/rate
				share(t, all, length, 10)
				var sum, total int64
				for i, s := range all {
					sum, total = sum+weights[i], total+within(s.slots, began, began+length)
				}
				if total < slots*95/100 {
					t.Errorf("%d/s, weights %v: %d of %d slots were used", rate, weights, total, slots)
				}
				for i, s := range all {
					got, want := within(s.slots, began, began+length), slots*weights[i]/sum
					if got < want-want/10-3 || got > want+want/10+3 {
						t.Errorf("%d/s, weights %v: bucket %d has %d slots, want %d", rate, weights, i, got, want)
					}
				}
			}
		}
	})
}
