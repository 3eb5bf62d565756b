package scripts_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// The even rate of a finish: the last of the jobs leaves shortly before it, whatever came on the way, and no second is fuller than 1.1 times
// the mean between two changes of the backlog. What returned from an attempt leaves too.
func TestFinishBy(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
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
	onBothInCI(t, func(t *testing.T, r *rig) {
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

// That the allowed rate is too low for the jobs until the finish is seen at once, and never of a rate that does.
func TestRateTooLowForTheFinish(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for rate, want := range map[int64]bool{10: true, 100: false} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			r.configure(settings{rateCount: rate, capacity: 10_000, inFlight: 10_000})
			r.obeyTimetable(stretch{from: -1, kind: "o", opened: -1, finish: 50 * second}, stretch{from: 50 * second, kind: "c"}, stretch{from: 100 * second, kind: "x"})
			r.put(numbered(1000)...)
			looks := 0
			for ; r.now() < epoch+50*second && (looks == 0 || !want); looks++ {
				for _, job := range r.claim(ask{want: 500}).jobs {
					r.settle(outcome{lease: job, result: done})
				}
				must.Be(t, r.inspect().times[7] == 1, want, "%d/s, after %d looks: too slow", rate, looks)
				r.pass(100_000)
			}
		}
	})
}

// A finish that will not be met is noted once, whoever foresees it, and only where a hook asks.
func TestNoteLate(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.setTime(epoch)
		r.configure(settings{rateCount: 10})
		note := func(finish int64, left int, why string) any {
			return r.run(lua.NoteLate, r.keysOf(lua.NoteLate), finish, left, why, "Sends 0 of 10/s.")
		}
		must.Equal[any](t, note(epoch+second, 7, "failing rate"), int64(0), "without a hook")
		r.hset("settings", "events", "job.dead finish.late")
		for i, want := range []int64{1, 0} {
			must.Equal[any](t, note(epoch+second, 7+i, "failing rate"), want, "call %d", i)
		}
		events := r.moveEvents()
		var detail struct{ Reason, At, Left, Why, Sentence string }
		if len(events) != 1 || events[0].name != "finish.late" || json.Unmarshal([]byte(events[0].detail), &detail) != nil ||
			detail.Reason != "failing" || detail.At != fmt.Sprint(epoch+second) || detail.Left != "7" || detail.Why != "failing rate" || detail.Sentence != "Sends 0 of 10/s." {
			t.Errorf("%+v", events)
		}
		r.moveEvents(events...)
		r.pass(61 * second)
		if got := note(epoch+61*second, 3, "quota"); got != int64(1) || len(r.moveEvents()) != 1 {
			t.Errorf("the next finish: %v", got)
		}
	})
}
