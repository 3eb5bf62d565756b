package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/lua"
)

// controlDrain starts or stops a drain, and returns the outcome and the state of the drain with how many have left.
func (r *rig) controlDrain(action, id string, count, per, most, untilEmpty int64) (outcome int64, state, gone string) {
	r.t.Helper()
	in := r.reader(lua.ControlDrain, r.keysOf(lua.ControlDrain), "tundish:wake", r.name, action, "anna of ops", id, count, per, most, untilEmpty)
	in.Int() // now
	outcome = in.Int()
	state, gone = drainState(in.Text())
	r.ok(in.Err())
	return outcome, state, gone
}

func drainState(text string) (state, gone string) {
	fields := strings.Fields(text)
	if len(fields) < 7 {
		return "", ""
	}
	return fields[0], fields[6]
}

func (r *rig) drainNow() (state, gone string) {
	r.t.Helper()
	return drainState(r.inspect().drain)
}

const forEver = 1 << 50

// A bucket that is drained by hand only leaks during a drain: so many jobs at most, no faster than the bucket, and evenly from the first slot on.
func TestDrainOfSoManyJobs(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			r.setTime(epoch)
			s := settings{rateCount: 50}
			claim := func(a ask) claimed { return r.claim(a) }
			if hasFlows {
				r.configureFlows(s, flowSettings{})
				claim = func(a ask) claimed { return r.drain(a) }
			} else {
				r.configure(s)
			}
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"})
			r.putIn("", 3, 0, numbered(20)...)
			r.pass(second)
			if c := claim(ask{}); len(c.jobs) > 0 || c.next != 0 {
				t.Fatalf("flows %t: without a drain %d jobs leave, next %d", hasFlows, len(c.jobs), c.next)
			}
			woken := r.wakes(func() { r.controlDrain("start", "d1", 0, 0, 7, 0) })
			if outcome, state, gone := r.controlDrain("start", "d1", 0, 0, 7, 0); outcome != 0 || state != "r" || gone != "0" || !woken {
				t.Errorf("flows %t: the same again: %d %s %s; dispatchers woken: %t", hasFlows, outcome, state, gone, woken)
			}
			if outcome, _, _ := r.controlDrain("start", "d2", 0, 0, 0, 1); outcome != 1 {
				t.Errorf("flows %t: a second drain beside the first: %d", hasFlows, outcome)
			}
			began := r.now()
			var got []int64
			for r.now() < began+5*second {
				for _, job := range claim(ask{horizon: 50_000, want: 100}).jobs {
					got = append(got, job.slot-began)
				}
				r.pass(20_000)
			}
			if len(got) != 7 || !slices.IsSorted(got) || got[6]-got[0] != 6*20_000 || got[0] > 50_000 {
				t.Errorf("flows %t: slots of the drain: %v", hasFlows, got)
			}
			if state, gone := r.drainNow(); state != "d" || gone != "7" {
				t.Errorf("flows %t: afterwards: %s %s", hasFlows, state, gone)
			}
			if outcome, state, _ := r.controlDrain("stop", "", 0, 0, 0, 0); outcome != 1 || state != "d" {
				t.Errorf("flows %t: a stop of what is done: %d %s", hasFlows, outcome, state)
			}
		}
	})
}

// A drain until empty ends once nothing waits and nothing is in flight, also where a rate of its own makes it slower. One that is stopped
// hands out no more.
func TestDrainUntilEmpty(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			r.setTime(epoch)
			claim := func(a ask) claimed { return r.claim(a) }
			if hasFlows {
				r.configureFlows(settings{rateCount: 50}, flowSettings{})
				claim = func(a ask) claimed { return r.drain(a) }
			} else {
				r.configure(settings{rateCount: 50})
			}
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: forEver, kind: "o"})
			r.putIn("", 3, 0, numbered(5)...)
			r.pass(second)
			r.controlDrain("start", "d1", 10, second, 0, 1)
			var held []lease
			var last int64
			for range 100 {
				c := claim(ask{horizon: 50_000})
				for _, job := range c.jobs {
					if last > 0 && job.slot-last < 100_000 {
						t.Errorf("flows %t: at 10/s two slots are %d µs apart", hasFlows, job.slot-last)
					}
					last, held = job.slot, append(held, job)
				}
				r.pass(10_000)
			}
			if state, gone := r.drainNow(); len(held) != 5 || state != "r" || gone != "5" {
				t.Errorf("flows %t: with %d in flight: %s %s", hasFlows, len(held), state, gone)
			}
			for _, job := range held {
				r.settle(outcome{lease: job, result: done})
			}
			if c := claim(ask{}); c.next != 0 && c.next < r.now()+3600*second {
				t.Errorf("flows %t: next in %d µs", hasFlows, c.next-r.now())
			}
			if state, _ := r.drainNow(); state != "d" {
				t.Errorf("flows %t: empty, and the drain is %s", hasFlows, state)
			}

			r.putIn("", 3, 0, named("more", 5)...)
			if c := claim(ask{}); len(c.jobs) > 0 {
				t.Errorf("flows %t: after the drain %d jobs left", hasFlows, len(c.jobs))
			}
			r.controlDrain("start", "d2", 0, 0, 0, 1)
			r.pass(second)
			if c := claim(ask{want: 1}); len(c.jobs) != 1 {
				t.Errorf("flows %t: another drain: %+v", hasFlows, c)
			}
			if outcome, state, _ := r.controlDrain("stop", "", 0, 0, 0, 0); outcome != 0 || state != "s" {
				t.Errorf("flows %t: stopped: %d %s", hasFlows, outcome, state)
			}
			r.pass(second)
			if c := claim(ask{}); len(c.jobs) > 0 {
				t.Errorf("flows %t: after a stop %d jobs left", hasFlows, len(c.jobs))
			}
		}
	})
}

// What people see of a timetable: whether the bucket is open, at which rate, until when, when it opens, and when the last job leaves.
func TestViewOfATimetable(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		if b := r.inspect(); b.hasTimes != 0 || b.drain != "" {
			t.Errorf("without a timetable: %v %v", b.hasTimes, b.times)
		}
		r.put(numbered(100)...)
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: 60 * second, kind: "o", opened: 60 * second}, stretch{from: 62 * second, kind: "c"},
			stretch{from: 160 * second, kind: "o", opened: 160 * second, count: 50, per: second, finish: 170 * second}, stretch{from: 170 * second, kind: "c"}, stretch{from: 300 * second, kind: "x"})
		const per10, at = second, epoch
		for _, c := range []struct {
			now  int64
			want [9]int64
		}{
			// 20 leave in the first window, and 80 evenly in the second, by 0.2 s before its finish.
			{0, [9]int64{0, 10, per10, at + 60*second, at + 60*second, 0, 0, 0, at + 160*second + 9_800_000}},
			{61 * second, [9]int64{1, 10, per10, at + 62*second, at + 61*second, 0, 0, 0, at + 160*second + 9_800_000}},
			{120 * second, [9]int64{0, 100, 9_800_000, at + 160*second, at + 160*second, at + 170*second, 100, 0, at + 160*second + 9_800_000}},
			{165 * second, [9]int64{1, 100, 4_800_000, at + 170*second, at + 165*second, at + 170*second, 100, 0, at + 165*second + 99*48_000}},
			{168_500_000, [9]int64{1, 50, per10, at + 170*second, at + 168_500_000, at + 170*second, 100, 1, 0}},
			{200 * second, [9]int64{0, 10, per10, at + 300*second, 0, 0, 0, 0, 0}},
		} {
			r.setTime(epoch + c.now)
			b := r.inspect()
			got := [9]int64(append(b.times[:], b.empty))
			if c.want[8] > 0 && got[8]-c.want[8] < 100_000 && c.want[8]-got[8] < 100_000 { // within an interval
				got[8] = c.want[8]
			}
			if got != c.want {
				t.Errorf("%d s: got\n%v, want\n%v", c.now/second, got, c.want)
			}
		}
	})
}
