package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
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
	r.hset("settings", "timetable", text.String())
}

const beforeEpoch = -1000 * second

// A closed bucket hands out nothing, and says when it opens. A claim shortly before gets the slots behind the opening: the first at the
// opening itself, an interval apart, or a burst and then an interval apart.
func TestOpening(t *testing.T) {
	for _, c := range []struct {
		burst int64
		want  []int64
	}{{1, []int64{0, 20_000, 40_000, 60_000}}, {3, []int64{0, 0, 0, 20_000, 40_000, 60_000}}} {
		t.Run(fmt.Sprint(c.burst), func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
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
				must.Equal(t, got.closes, epoch+opens+10*second, "closes %d µs after the opening", got.closes-epoch-opens)
				r.setTime(epoch + opens + 10_000)
				if next := r.claim(ask{horizon: 80_000}); len(next.jobs) == 0 || next.jobs[0].slot != epoch+opens+80_000 {
					t.Errorf("the claim behind it: %+v", next)
				}
			})
		})
	}
}

// The last slot lies before the end, and a claim that is answered again says when permits are void, too.
func TestClosing(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
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
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.put(numbered(60)...)
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: 250_000, kind: "o", count: 100, per: second}, stretch{from: 345_000, kind: "o", count: 20, per: second})
		var got []int64
		for r.now() < epoch+500_000 {
			c := r.claim(ask{horizon: 50_000, lead: 1})
			for _, job := range c.jobs {
				got = append(got, (job.slot-epoch)/1000)
			}
			must.Equal(t, c.closes, 0, "permits are void at")
			r.pass(10_000)
		}
		want := []int64{100, 200, 250, 260, 270, 280, 290, 300, 310, 320, 330, 340, 390, 440, 490, 540}
		if d := len(got) - len(want); d > 0 || d < -1 || !slices.EqualFunc(got, want[:len(got)], func(a, b int64) bool { return a-b <= 1 && b-a <= 1 }) {
			t.Errorf("slots at %v ms, want %v", got, want)
		}
		r.control("set", "anna", "rate_count", 200, "rate_per", second)
		c := r.claim(ask{horizon: 50_000})
		must.Equal(t, c.rateCount*second, 200*c.ratePer, "with an override of 200/s the rate is %d in %d µs", c.rateCount, c.ratePer)
		r.control("reset", "anna", "rate_count", "rate_per")
		if c = r.claim(ask{}); c.rateCount*second != 20*c.ratePer {
			t.Errorf("after the reset the rate is %d in %d µs", c.rateCount, c.ratePer)
		}
	})
}

// A window until empty closes once nothing waits, is due or is in flight, and what comes later waits for the next one.
func TestUntilEmpty(t *testing.T) {
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
			must.Be(t, len(c.jobs), 2, "flows %t: %+v", hasFlows, c)
			r.settle(outcome{lease: c.jobs[0], result: done})
			if c2 := claim(); c2.next == 0 || c2.next > r.now()+second {
				t.Errorf("flows %t: with a job in flight the next look is in %d µs", hasFlows, c2.next-r.now())
			}
			r.putIn("", 3, 0, "j3")
			r.pass(second)
			c3 := claim()
			must.Equal(t, c3.ids(), "j3", "flows %t: while one is in flight the window stays open: %+v", hasFlows, c3)
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
	onBothInCI(t, func(t *testing.T, r *rig) {
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

// A claim that looks less far ahead than the one before, which has handed out a slot of the next stretch, gets none of the stretch before: the
// higher rate of the next one has filled the bucket up in between.
func TestNoSlotOfAStretchThatWasLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.setTime(epoch)
		r.configure(settings{rateCount: 1, burst: 5})
		r.put(numbered(50)...)
		r.obeyTimetable(stretch{from: -1, kind: "o", opened: -1, count: 10, per: second}, stretch{from: second, kind: "o", opened: -1, count: 1000, per: second},
			stretch{from: 10 * second, kind: "x"})
		r.claim(ask{want: 1, horizon: 1})
		r.pass(950_000)
		must.Be(t, len(r.claim(ask{want: 50, horizon: 10}).jobs), 5, "jobs left, want the burst")
		if c := r.claim(ask{want: 1, horizon: 200_000}); len(c.jobs) != 1 || c.jobs[0].slot < epoch+second {
			t.Fatalf("of the next stretch: %+v", c.jobs)
		}
		r.pass(1000)
		must.Equal(t, len(r.claim(ask{want: 50, horizon: 10_000}).jobs), 0, "more of the stretch before")
		r.pass(50_000)
		if c := r.claim(ask{want: 50, horizon: 1}); len(c.jobs) == 0 {
			t.Error("none of the next stretch, when it has begun")
		}
	})
}

// Whatever the timetable, no slot lies outside its windows, and R·W+B holds at every time, with the highest rate that any stretch has.
func TestNoSlotOutsideAWindow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
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
					must.Be(rt, c.closes, closes, "permits of stretch %d are void at %d, want %d", i, c.closes-epoch, closes-epoch)
				}
				r.pass(rapid.Int64Range(1, 300_000).Draw(rt, "micros"))
			}
			checkWindows(rt, all, highest)
		})
	})
}
