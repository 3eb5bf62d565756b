package scripts_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

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
