package scripts_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// stretch is a part of a timetable, with times from the epoch on.
type stretch struct {
	from           int64
	kind           string // c closed, o open, e until empty, x unknown
	count, per     int64
	opened, finish int64
}

// obeyTimetable writes the timetable of the bucket.
func (r *rig) obeyTimetable(stretches ...stretch) {
	r.t.Helper()
	var text strings.Builder
	abs := func(at int64) int64 {
		if at == 0 {
			return 0
		}
		return epoch + at
	}
	for _, s := range stretches {
		fmt.Fprintf(&text, "%d %s %d %d %d %d;", epoch+s.from, s.kind, s.count, s.per, abs(s.opened), abs(s.finish))
	}
	r.ok(r.c.HSet(r.ctx, r.key("settings"), "timetable", text.String()).Err())
}

const beforeEpoch = -1000 * second

// A closed bucket hands out nothing, and says when it opens. A claim shortly before gets the slots behind the opening: the first at the
// opening itself, an interval apart, or a burst and then an interval apart.
func TestOpening(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		burst int64
		want  []int64
	}{{1, []int64{0, 20_000, 40_000, 60_000}}, {3, []int64{0, 0, 0, 20_000, 40_000, 60_000}}} {
		onBoth(t, func(t *testing.T, r *rig) {
			r.configure(settings{rateCount: 50, burst: c.burst})
			r.put(numbered(50)...)
			for range 3 { // so that there is a pace
				r.claim(ask{want: 1})
				r.pass(second)
			}
			opens := r.now() - epoch + 3600*second
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: opens, kind: "o"}, stretch{from: opens + 10*second, kind: "c"}, stretch{from: opens + 20*second, kind: "x"})
			for _, ahead := range []int64{3600 * second, second, 200_001} {
				r.setTime(epoch + opens - ahead)
				if got := r.claim(ask{}); len(got.jobs) != 0 || got.next != epoch+opens {
					t.Errorf("%d µs before it opens: %d jobs, next %d µs after it", ahead, len(got.jobs), got.next-epoch-opens)
				}
			}
			r.setTime(epoch + opens - 139_000)
			got := r.claim(ask{})
			slots(t, got, epoch+opens, c.want...)
			if got.closes != epoch+opens+10*second {
				t.Errorf("closes %d µs after the opening", got.closes-epoch-opens)
			}
			r.setTime(epoch + opens + 10_000)
			if next := r.claim(ask{horizon: 80_000}); len(next.jobs) == 0 || next.jobs[0].slot != epoch+opens+80_000 {
				t.Errorf("the claim behind it: %+v", next)
			}
		})
	}
}

// The last slot lies before the end, and a claim that is answered again says when permits are void, too.
func TestClosing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 50})
		r.put(numbered(50)...)
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: 100_000, kind: "c"}, stretch{from: 7200 * second, kind: "o"}, stretch{from: 7300 * second, kind: "x"})
		c := r.claim(ask{claim: "c1"})
		slots(t, c, epoch, 20_000, 40_000, 60_000, 80_000)
		if c.next != epoch+7200*second || c.closes != epoch+100_000 {
			t.Errorf("next %d, closes %d µs from now", c.next-epoch, c.closes-epoch)
		}
		if again := r.claim(ask{claim: "c1"}); again.closes != c.closes || len(again.jobs) != len(c.jobs) {
			t.Errorf("again: %+v", again)
		}
		r.setTime(epoch + 7200*second)
		if c = r.claim(ask{want: 1}); len(c.jobs) != 1 || c.jobs[0].slot != epoch+7200*second {
			t.Errorf("at the next opening: %+v", c)
		}
		r.setTime(epoch + 7300*second)
		if c = r.claim(ask{}); len(c.jobs) != 0 || c.next != 0 {
			t.Errorf("where the timetable ends: %+v", c)
		}
	})
}

// One rate of the calendar follows another one without a gap or a double, and an operator's override goes before both.
func TestCalendarRates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.put(numbered(60)...)
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: 250_000, kind: "o", count: 100, per: second}, stretch{from: 345_000, kind: "o", count: 20, per: second})
		var got []int64
		for r.now() < epoch+500_000 {
			c := r.claim(ask{horizon: 50_000, lead: 1})
			for _, job := range c.jobs {
				got = append(got, (job.slot-epoch)/1000)
			}
			if c.closes != 0 {
				t.Errorf("permits are void at %d", c.closes)
			}
			r.pass(10_000)
		}
		want := []int64{100, 200, 250, 260, 270, 280, 290, 300, 310, 320, 330, 340, 390, 440, 490, 540}
		if d := len(got) - len(want); d > 0 || d < -1 || !slices.EqualFunc(got, want[:len(got)], func(a, b int64) bool { return a-b <= 1 && b-a <= 1 }) {
			t.Errorf("slots at %v ms, want %v", got, want)
		}
		r.control("set", "anna", "rate_count", 200, "rate_per", second)
		c := r.claim(ask{horizon: 50_000})
		if c.rateCount*second != 200*c.ratePer {
			t.Errorf("with an override of 200/s the rate is %d in %d µs", c.rateCount, c.ratePer)
		}
		r.control("reset", "anna", "rate_count", "rate_per")
		if c = r.claim(ask{}); c.rateCount*second != 20*c.ratePer {
			t.Errorf("after the reset the rate is %d in %d µs", c.rateCount, c.ratePer)
		}
	})
}

// A window until empty closes once nothing waits, is due or is in flight, and what comes later waits for the next one.
func TestUntilEmpty(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			r.setTime(epoch)
			next := int64(3600 * second)
			claim := func() claimed { return r.claim(ask{}) }
			if hasFlows {
				r.configureFlows(settings{}, flowSettings{})
				claim = func() claimed { return r.drain(ask{}) }
			} else {
				r.configure(settings{})
			}
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "e", opened: -1}, stretch{from: 100 * second, kind: "c"}, stretch{from: next, kind: "e", opened: next}, stretch{from: 2 * next, kind: "x"})
			r.putIn("", 3, 0, "j1", "j2")
			r.pass(second)
			c := claim()
			if len(c.jobs) != 2 {
				t.Fatalf("flows %t: %+v", hasFlows, c)
			}
			r.settle(outcome{lease: c.jobs[0], result: done})
			if c2 := claim(); c2.next == 0 || c2.next > r.now()+second {
				t.Errorf("flows %t: with a job in flight the next look is in %d µs", hasFlows, c2.next-r.now())
			}
			r.putIn("", 3, 0, "j3")
			r.pass(second)
			c3 := claim()
			if c3.ids() != "j3" {
				t.Errorf("flows %t: while one is in flight the window stays open: %+v", hasFlows, c3)
			}
			r.settle(outcome{lease: c.jobs[1], result: done}, outcome{lease: c3.jobs[0], result: done})
			claim()
			r.putIn("", 3, 0, "j4")
			r.pass(second)
			if c = claim(); len(c.jobs) != 0 || c.next != epoch+next {
				t.Errorf("flows %t: after it was empty: %d jobs, next %d µs before the next window", hasFlows, len(c.jobs), epoch+next-c.next)
			}
			r.setTime(epoch + next)
			if c = claim(); c.ids() != "j4" {
				t.Errorf("flows %t: in the next window: %+v", hasFlows, c)
			}
		}
	})
}

// A closed bucket with flows, or of a pool, is like a held one: turns stay, and it takes no slot from another bucket.
func TestClosedBucketOfAPool(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		a := r.pooled(t, "p", "a", 1, settings{rateCount: 1000})
		b := r.pooled(t, "p", "b", 1, settings{rateCount: 1000})
		a.configurePool(poolSettings{rateCount: 100})
		a.putMany(100)
		b.putMany(100)
		a.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: second, kind: "o"}, stretch{from: 100 * second, kind: "x"})
		jobs := 0
		for r.now() < epoch+500_000 {
			if c := a.claim(ask{horizon: 100_000}); len(c.jobs) > 0 || c.next != epoch+second {
				t.Fatalf("closed: %+v", c)
			}
			jobs += len(b.claim(ask{horizon: 100_000}).jobs)
			r.pass(50_000)
		}
		if jobs < 50 {
			t.Errorf("the other bucket got %d slots of the pool in 0.5 s, at 100/s", jobs)
		}
		if k := a.kept(); k.waits != 0 || k.held != 0 {
			t.Errorf("the pool keeps of the closed bucket: %+v", k)
		}
	})
}

// Whatever the timetable, no slot lies outside its windows, and R·W+B holds at every time, with the highest rate that any stretch has.
func TestNoSlotOutsideAWindow(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("p", nextClaim()))
			r.setTime(epoch)
			flows := rapid.Bool().Draw(rt, "flows")
			s := settings{rateCount: rapid.Int64Range(1, 500).Draw(rt, "rate"), burst: rapid.Int64Range(1, 5).Draw(rt, "burst"), capacity: 100_000, inFlight: 100_000}
			claim := func(a ask) claimed { return r.claim(a) }
			if flows {
				r.configureFlows(s, flowSettings{})
				claim = func(a ask) claimed { return r.drain(a) }
			} else {
				r.configure(s)
			}
			r.putIn("", 3, 0, numbered(300)...)
			var stretches []stretch
			highest := s
			for at := int64(-1); at < 5*second; at += rapid.Int64Range(1000, second).Draw(rt, "length") {
				one := stretch{from: at, kind: rapid.SampledFrom([]string{"c", "o", "o", "e"}).Draw(rt, "kind")}
				if one.kind != "c" {
					one.opened = at
					if rapid.Bool().Draw(rt, "calendar") {
						one.count, one.per = rapid.Int64Range(1, 1000).Draw(rt, "count"), second
						highest.rateCount = max(highest.rateCount, one.count)
					}
					if rapid.Bool().Draw(rt, "has a finish") {
						one.finish = at + rapid.Int64Range(1, 2*second).Draw(rt, "finish")
					}
				}
				stretches = append(stretches, one)
			}
			r.obeyTimetable(append(stretches, stretch{from: 10 * second, kind: "x"})...)
			highest.ratePer = second
			var all []int64
			for range rapid.IntRange(1, 25).Draw(rt, "claims") {
				horizon := rapid.Int64Range(1, 200_000).Draw(rt, "horizon")
				a := ask{want: rapid.Int64Range(1, 50).Draw(rt, "want"), horizon: horizon, lead: rapid.Int64Range(0, horizon/2).Draw(rt, "lead"),
					dispatcher: rapid.SampledFrom([]string{"d1", "d2"}).Draw(rt, "dispatcher")}
				c := claim(a)
				for _, job := range c.jobs {
					all = append(all, job.slot)
					i := len(stretches) - 1
					for stretches[i].from+epoch > job.slot {
						i--
					}
					if stretches[i].kind == "c" {
						rt.Fatalf("a slot %d µs after the epoch, in stretch %d, which is closed: %+v", job.slot-epoch, i, stretches)
					}
					closes := int64(0)
					if i+1 < len(stretches) && stretches[i+1].kind == "c" {
						closes = stretches[i+1].from + epoch
					} else if i+1 == len(stretches) {
						closes = epoch + 10*second
					}
					if c.closes != closes {
						rt.Fatalf("permits of stretch %d are void at %d, want %d", i, c.closes-epoch, closes-epoch)
					}
				}
				r.pass(rapid.Int64Range(1, 300_000).Draw(rt, "micros"))
			}
			checkWindows(rt, all, highest)
		})
	})
}

// The even rate of a finish: the last of the jobs leaves shortly before it, whatever came on the way, and no second is fuller than 1.1 times
// the mean between two changes of the backlog. What returned from an attempt leaves too.
func TestFinishBy(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 5000, capacity: 100_000, inFlight: 100_000, burst: 7})
		const end = 20 * second
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: 0, kind: "o", opened: 1, finish: end}, stretch{from: end, kind: "c"}, stretch{from: 100 * second, kind: "x"})
		r.pass(-second)
		const total, more = 2000, 1000
		r.putMany(total)
		var all []int64
		for came := false; r.now() < epoch+end; {
			if !came && r.now() >= epoch+end/2 {
				came = true
				r.putIn("", 3, 0, named("late", more)...)
			}
			c := r.claim(ask{horizon: 100_000, lead: 500, dispatcher: fmt.Sprint("d", r.now()%3)})
			var ended []outcome
			for _, job := range c.jobs {
				all = append(all, job.slot-epoch)
				ended = append(ended, outcome{lease: job, result: done})
			}
			if len(ended) > 0 {
				r.settle(ended...)
			}
			r.pass(37_001)
		}
		slices.Sort(all)
		if len(all) != total+more {
			t.Fatalf("%d jobs left, of %d", len(all), total+more)
		}
		if last := all[len(all)-1]; last < end*95/100 || last >= end {
			t.Errorf("the last leaves %d µs before the finish", end-last)
		}
		half, fullest := float64(total)/20, [2]float64{}
		means := [2]float64{half, half + float64(more)/10}
		for i, from := range all {
			n := 0
			for n+i < len(all) && all[i+n] < from+second {
				n++
			}
			part := 0
			if from >= end/2+100_000 {
				part = 1
			} else if from+second > end/2 {
				continue
			}
			fullest[part] = math.Max(fullest[part], float64(n)/means[part])
		}
		if fullest[0] > 1.1 || fullest[1] > 1.1 {
			t.Errorf("the fullest seconds have %.3f and %.3f of the means", fullest[0], fullest[1])
		}
		t.Logf("%d and %d more: the last leaves %.3f s before the finish, the fullest seconds have %.3f and %.3f of the means",
			total, more, float64(end-all[len(all)-1])/second, fullest[0], fullest[1])
	})
}

// A few jobs are spread over all of the time, and the dispatcher that waits for the slot of one of them sees within half a second that more
// came. What the jobs were told when they came is when they left.
func TestFinishByOfFewJobs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 5000, capacity: 100_000, inFlight: 100_000})
		const end = 50 * second
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: 0, kind: "o", opened: 1, finish: end}, stretch{from: end, kind: "c"}, stretch{from: 100 * second, kind: "x"})
		r.pass(-second)
		r.put("before") // from then on it is known when the last job left
		for c := r.claim(ask{}); ; c = r.claim(ask{}) {
			if len(c.jobs) > 0 {
				r.settle(outcome{lease: c.jobs[0], result: done})
				break
			}
			r.pass(1000)
		}
		r.setTime(epoch)
		var slots []int64
		run := func(till int64) (looks int) {
			for r.now() < epoch+till {
				c := r.claim(ask{horizon: 100_000, lead: 500})
				for _, job := range c.jobs {
					slots = append(slots, job.slot-epoch)
					r.settle(outcome{lease: job, result: done})
				}
				looks++
				if next := c.next - r.now(); next > second/2 || c.next == 0 && len(slots) < 5 {
					t.Fatalf("the next look is in %d µs", next)
				}
				r.pass(max(min(c.next-r.now(), second/2), 10_000))
			}
			return looks
		}
		r.put("a", "b", "c", "d", "e")
		var told []int64
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			told = append(told, r.job(id).instant-epoch)
		}
		looks := run(45 * second)
		if len(slots) != 4 || looks > 120 {
			t.Fatalf("%v left in %d looks", slots, looks)
		}
		r.put(named("more", 200)...)
		run(end)
		for i, at := range slots[:4] {
			if want := int64(i) * 49 * second / 4; at < want-second || at > want+second || told[i] < at-second || told[i] > at+second {
				t.Errorf("job %d left at %.1f s and was told %.1f s; want %.1f s", i, float64(at)/second, float64(told[i])/second, float64(want)/second)
			}
		}
		if last := slots[len(slots)-1]; len(slots) != 205 || last < 48*second || last >= end {
			t.Errorf("%d left, the last at %.1f s", len(slots), float64(last)/second)
		}
	})
}

// A finish that cannot be met is told ahead of time, once: because the rate is too low, or because fewer jobs departed than were to.
func TestFinishWillNotBeMet(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, base *rig) {
		for _, c := range []struct {
			name   string
			rate   int64
			jobs   int
			quotas string
			want   string
			within int64
		}{
			{"the rate is too low", 10, 1000, "", "rate", second},
			{"a quota holds jobs back", 1000, 1000, "5 1000000;", "behind", 20 * second},
			{"in time", 100, 1000, "", "", 100 * second},
		} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			r.configure(settings{rateCount: c.rate, capacity: 10_000, inFlight: 10_000})
			r.ok(r.c.HSet(r.ctx, r.key("settings"), "events", "finish.late", "quotas", c.quotas).Err())
			r.obeyTimetable(stretch{from: -1, kind: "o", opened: -1, finish: 50 * second}, stretch{from: 50 * second, kind: "c"}, stretch{from: 100 * second, kind: "x"})
			r.put(numbered(c.jobs)...)
			told := ""
			for r.now() < epoch+min(c.within, 50*second) && told == "" {
				c := r.claim(ask{want: 500})
				for _, job := range c.jobs {
					r.settle(outcome{lease: job, result: done})
				}
				told, _ = r.c.HGet(r.ctx, r.key("outbox_texts"), "finish.late").Result()
				r.pass(100_000)
			}
			if c.want == "" && told != "" || !strings.Contains(told, c.want) {
				t.Errorf("%s: told %q", c.name, told)
			}
			for range 5 {
				r.claim(ask{want: 1})
				r.pass(50_000)
			}
			if n, _ := r.c.HGet(r.ctx, r.key("outbox_texts"), "finish.late").Result(); n != told {
				t.Errorf("%s: told again: %q, before %q", c.name, n, told)
			}
		}
	})
}
