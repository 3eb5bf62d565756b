package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// window is a bound on slots: any count+1 of them, one after the other, span it.
type window struct{ count, length int64 }

// broken tells of the first place where slots break a bound.
func (w window) broken(slots []int64) string {
	for i := int(w.count); i < len(slots); i++ {
		if d := slots[i] - slots[i-int(w.count)]; d < w.length {
			return fmt.Sprintf("%d slots within %d µs, which have room for %d: number %d", w.count+1, d, w.count, i)
		}
	}
	return ""
}

// departures claims with a backlog, each time when the script says, until a
// time has passed or nothing waits any more, and returns the slots. What is claimed is done at once.
func (r *rig) departures(length int64, claim func() claimed) []int64 {
	r.t.Helper()
	var slots []int64
	for end := r.now() + length; r.now() < end; {
		c := claim()
		var ended []outcome
		for _, job := range c.jobs {
			slots, ended = append(slots, job.slot), append(ended, outcome{lease: job, result: done})
		}
		if len(ended) > 0 {
			r.settle(ended...)
		}
		if c.next == 0 {
			return slots
		}
		r.pass(max(c.next-c.now-10_000, 10_000))
	}
	return slots
}

// The limits of an API that allows 3 a second, 100 a minute, 300 an hour and
// 2,000 a day, all at once and in every window (Bull, issue 2112), over a day and an hour.
// Where tests shall be quick, hours are minutes.
func TestSeveralWindows(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	day, hour, jobs, most := int64(86400*second), int64(3600*second), 3000, 2301
	windows := []window{{3, second}, {100, 60 * second}, {300, hour}, {2000, day}}
	if !redistest.Soak {
		day, hour, jobs, most = 1440*second, 60*second, 400, 231
		windows = []window{{3, second}, {10, 6 * second}, {30, hour}, {200, day}}
	}
	r.configure(settings{rateCount: 3, capacity: 10_000, inFlight: 10_000})
	quotas := ""
	for _, w := range windows[1:] {
		quotas += fmt.Sprint(w.count, " ", w.length, ";")
	}
	r.hset("settings", "quotas", quotas)
	for i := range jobs / 100 {
		r.putIn("", 3, 0, named(fmt.Sprintf("j%d-", i), 100)...)
	}
	slots := r.departures(day+hour, func() claimed { return r.claim(ask{}) })
	for _, w := range windows {
		must.Equal(t, w.broken(slots), "", "%d in %d µs", w.count, w.length)
	}
	if len(slots) < most-11 || len(slots) > most {
		t.Errorf("%d departures in %d s", len(slots), (day+hour)/second)
	}
	first := int(windows[2].count)
	t.Logf("%d departures in %d s; the first %d took %d s", len(slots), (day+hour)/second, first, (slots[first-1]-slots[0])/second)
}

// A quota counts in a window that is a 50th longer, by 11 s at most: so calls may need that much longer on their way than those before
// them, and no window at the receiver has too many. It costs no more than that.
func TestQuotaMargin(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	for length, margin := range map[int64]int64{
		second: 20_000, 10 * second: 200_000, 60 * second: 1_200_000, 550 * second: 11 * second, 3600 * second: 11 * second, 86400 * second: 11 * second,
	} {
		r := base.fresh(t, fmt.Sprint("b", nextClaim()))
		r.setTime(epoch)
		r.configure(settings{rateCount: 1000, capacity: 100, inFlight: 100})
		r.hset("settings", "quotas", fmt.Sprint(3, " ", length, ";"))
		r.put(named("j", 12)...)
		slots := r.departures(5*length, func() claimed { return r.claim(ask{}) })
		must.Be(t, len(slots), 12, "a window of %d µs: departures", length)
		must.Equal(t, (window{3, length + margin}).broken(slots), "", "a window of %d µs", length)
		if span := slots[3] - slots[0]; span > length+margin+100_000 {
			t.Errorf("a window of %d µs: the fourth slot comes %d µs after the first", length, span)
		}
	}
}

// A rate lets one more than its number into some windows of a second. With a quota of the same number no window has more, for a 50th of the rate.
func TestQuotaOfTheRate(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	for quotas, strictly := range map[string]bool{"": false, fmt.Sprint("5 ", second, ";"): true} {
		r := base.fresh(t, fmt.Sprint("b", nextClaim()))
		r.setTime(epoch)
		r.configure(settings{rateCount: 5, capacity: 100, inFlight: 100})
		r.hset("settings", "quotas", quotas)
		r.put(named("j", 50)...)
		slots := r.departures(60*second, func() claimed { return r.claim(ask{}) })
		// A window with both of its ends, as a log of the receiver has it.
		if fault := (window{5, second + 1}).broken(slots); (fault == "") != strictly {
			t.Errorf("quotas %q: %q", quotas, fault)
		}
		if len(slots) != 50 || slots[49]-slots[0] > 10*second {
			t.Errorf("quotas %q: %d departures in %d µs", quotas, len(slots), slots[len(slots)-1]-slots[0])
		}
	}
}

// A flow whose quota is used up sleeps until it is not, and nobody asks for it meanwhile.
func TestFlowQuotas(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configureFlows(settings{rateCount: 100, capacity: 10_000, inFlight: 10_000},
		flowSettings{rateCount: 10, ratePer: second, quotas: "5 60000000;"})
	const flows = 50
	for f := range flows {
		r.putIn(fmt.Sprint("flow", f), 3, 0, named(fmt.Sprintf("j%d-", f), 20)...)
	}
	claims, of := 0, map[string][]int64{}
	all := r.departures(190*second, func() claimed {
		claims++
		c := r.drain(ask{})
		for _, job := range c.jobs {
			var flow int
			must.Get(fmt.Sscanf(job.id, "j%d-", &flow))(t)
			of[fmt.Sprint(flow)] = append(of[fmt.Sprint(flow)], job.slot)
		}
		return c
	})
	if len(all) != flows*20 {
		t.Errorf("%d departures of %d", len(all), flows*20)
	}
	for flow, slots := range of {
		for _, w := range []window{{1, 100_000}, {5, 60 * second}} {
			must.Equal(t, w.broken(slots), "", "flow %s", flow)
		}
	}
	must.Equal(t, (window{1, 10_000}).broken(all), "", "bucket")
	// Four minutes' quotas are 10 s of the bucket's rate, in claims of up to 160 ms.
	if claims > 300 {
		t.Errorf("%d claims for %d departures", claims, len(all))
	}
}

// Whatever the bounds, in flight, rates, quotas, weights, and however often the
// clock steps back, no slot breaks a bound of the bucket or of its flow.
func TestBoundsTogether(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	rapid.Check(t, func(t *rapid.T) { boundsTogether(t, base.fresh(t, fmt.Sprint("b", nextClaim()))) })
}

func boundsTogether(t *rapid.T, r *rig) {
	r.setTime(epoch)
	rate := rapid.SampledFrom([]int64{7, 50, 1000}).Draw(t, "rate")
	burst := rapid.SampledFrom([]int64{1, 3}).Draw(t, "burst")
	flowRate := rapid.SampledFrom([]int64{0, 3, 20}).Draw(t, "flow rate")
	flowBurst := rapid.SampledFrom([]int64{1, 4}).Draw(t, "flow burst")
	quotaCount := rapid.SampledFrom([]int64{0, 2, 30}).Draw(t, "quota")
	inFlight := rapid.SampledFrom([]int64{0, 1, 5}).Draw(t, "in flight")
	f := flowSettings{rateCount: flowRate, ratePer: second, burst: flowBurst, inFlight: inFlight}
	if quotaCount > 0 {
		f.quotas = fmt.Sprint(quotaCount, " ", 2*second, ";")
	}
	r.configureFlows(settings{rateCount: rate, burst: burst, capacity: 10_000, inFlight: 10_000}, f)
	r.hset("settings", "quotas", fmt.Sprint(5*rate, " ", 10*second, ";"))
	flows := rapid.IntRange(1, 6).Draw(t, "flows")
	for i := range flows {
		name := string(rune('a' + i))
		r.putIn(name, 1+i%4, 0, named(name, 60)...)
		if i%3 == 1 {
			r.setFlow(name, flowSettings{weight: 4})
		}
	}
	var all []int64
	of, leased := map[byte][]int64{}, map[byte][]outcome{}
	for range 20 {
		c := r.drain(ask{want: rapid.Int64Range(1, 50).Draw(t, "want"), horizon: rapid.SampledFrom([]int64{20_000, 200_000}).Draw(t, "horizon")})
		for _, job := range c.jobs {
			flow := job.id[0]
			all, of[flow] = append(all, job.slot), append(of[flow], job.slot)
			leased[flow] = append(leased[flow], outcome{lease: job, result: done})
			if n := int64(len(leased[flow])); inFlight > 0 && n > inFlight {
				t.Fatalf("flow %c: %d in flight", flow, n)
			}
		}
		for _, flow := range slices.Sorted(maps.Keys(leased)) {
			if rapid.Bool().Draw(t, "settle") && len(leased[flow]) > 0 {
				r.settle(leased[flow]...)
				leased[flow] = nil
			}
		}
		r.pass(rapid.Int64Range(1, 400_000).Draw(t, "wait"))
	}
	check := func(who string, slots []int64, w window) {
		must.Be(t, w.broken(slots), "", "%s", who)
	}
	check("bucket", all, window{5 * rate, 10 * second})
	checkPace(t, "bucket", all, rate, burst)
	for flow, slots := range of {
		if flowRate > 0 {
			checkPace(t, fmt.Sprintf("flow %c", flow), slots, flowRate, flowBurst)
		}
		if quotaCount > 0 {
			check(fmt.Sprintf("flow %c", flow), slots, window{quotaCount, 2 * second})
		}
	}
}

// checkPace holds slots to rate·W + burst in every window.
func checkPace(t *rapid.T, who string, slots []int64, rate, burst int64) {
	for i := range slots {
		for j := i + int(burst); j < len(slots); j++ {
			if span, n := slots[j]-slots[i], int64(j-i+1); (n-burst)*second > (span+2)*rate {
				t.Fatalf("%s: %d slots within %d µs at %d/s, burst %d", who, n, span, rate, burst)
			}
		}
	}
}

// Where the clock stepped back, times of departures lie in the future for as long as it
// takes the clock to get there. Nobody waits for that, but a window more at most, and nobody
// asks meanwhile, however many flows there are that could send something.
func TestQuotasWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	const window = 3 * second
	for name, c := range map[string]struct{ quotas, flowQuotas string }{
		"of the bucket": {quotas: "5 3000000;"},
		"of a flow":     {flowQuotas: "5 3000000;"},
		"of both":       {quotas: "600 60000000;5 3000000;", flowQuotas: "600 60000000;5 3000000;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := realRig(t)
			r.configureFlows(settings{rateCount: 100, capacity: 10_000, inFlight: 10_000}, flowSettings{quotas: c.flowQuotas})
			r.hset("settings", "quotas", c.quotas)
			r.putIn("a", 3, 0, named("j", 200)...)
			claims := 0
			claim := func() claimed {
				claims++
				return r.drain(ask{})
			}
			if slots := r.departures(3*window, claim); len(slots) < 15 || len(slots) > 20 {
				t.Errorf("%d departures in 3 windows", len(slots))
			}
			for range 3 {
				r.pass(-3600 * second)
				if slots := r.departures(window-200_000, claim); len(slots) > 5 {
					t.Errorf("%d departures within a window of the step", len(slots))
				}
				if slots := r.departures(4*window, claim); len(slots) < 15 || len(slots) > 25 {
					t.Errorf("%d departures in 4 windows", len(slots))
				}
			}
			if claims > 40 {
				t.Errorf("%d claims in 18 windows", claims)
			}
		})
	}
}

// What is left of each quota is told, and when one that is used up lets the next job go: of a bucket, and of a pool.
func TestQuotasAreShown(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const ahead = 7 * second // of the engine's clock
		r.configure(settings{rateCount: 10})
		must.Equal(t, r.inspect().quotas, "", "without quotas")
		now := r.now()
		r.hset("settings", "quotas", "2 10000000;5 100000000;")
		r.hset("pace", "offset", ahead)
		for _, ago := range []int64{10_300_000, 10_100_000, 3 * second} { // the first is beyond the margin
			r.lpush("departed", now+ahead-ago)
		}
		want := fmt.Sprintf("2 10000000 2 %d;5 100000000 3 0;", now-10_100_000+10_200_000)
		must.Equal(t, r.inspect().quotas, want, "it is")
		r.put("n1")
		must.Equal(t, r.job("n1").quotas, [4]string{want, "", "", ""}, "of a job it is, want %q", want)
	})
}

func TestQuotasOfAPoolAreShown(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		r := base.pooled(t, "pool", "a", 1, settings{rateCount: 1000})
		r.configurePool(poolSettings{rateCount: 10, quotas: "1 10000000;"})
		r.put("n1")
		now := r.now()
		r.ok(r.c.LPush(r.ctx, r.poolKey("departed"), now-second).Err())
		want := fmt.Sprintf("1 10000000 1 %d;", now-second+10_200_000)
		must.Equal(t, r.inspectPool().left, want, "of a pool it is")
		must.Equal(t, r.inspect().quotasOfPool, want, "of the pool of a bucket it is")
		must.Equal(t, r.job("n1").quotas[3], want, "of a job in a pool it is")
	})
}
