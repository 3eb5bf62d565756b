package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A receipt and a look at a job tell a departure within the windows, at their rates. Nobody knows when a bucket leaks that is drained by hand.
func TestETAMindsTheTimetable(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			r.setTime(epoch)
			if hasFlows {
				r.configureFlows(settings{rateCount: 10}, flowSettings{})
			} else {
				r.configure(settings{rateCount: 10})
			}
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: 60 * second, kind: "o", opened: 60 * second}, stretch{from: 62 * second, kind: "c"},
				stretch{from: 160 * second, kind: "o", opened: 160 * second, count: 50, per: second}, stretch{from: 162 * second, kind: "c"}, stretch{from: 300 * second, kind: "x"})
			jobs := make([]entry, 130)
			for i := range jobs {
				jobs[i] = entry{id: fmt.Sprint("j", i), flow: ""}
			}
			answers := r.enqueue(nil, jobs...)
			// 20 leave in the first window, 100 in the second; what is behind them nobody knows.
			for i, want := range map[int]int64{0: 60 * second, 19: 60*second + 1_900_000, 20: 160 * second, 25: 160*second + 100_000, 119: 160*second + 99*20_000, 120: 0} {
				got := answers[i].eta
				if got > 0 {
					got -= epoch
				}
				must.Equal(t, got, want, "flows %t: job %d leaves at µs", hasFlows, i)
				if seen := r.job(jobs[i].id); !hasFlows && (seen.instant > 0) != (want > 0) || !hasFlows && want > 0 && seen.instant-epoch != want || seen.closed != 1 || seen.opens != epoch+60*second {
					t.Errorf("job %d is seen to leave at %d µs, want %d; closed %d, opens %d", i, seen.instant-epoch, want, seen.closed, seen.opens-epoch)
				}
			}
			for wait, code := range map[int64]int64{200 * second: 17, 3600 * second: 17} { // 130 ahead of it
				if a := r.enqueue(nil, entry{id: fmt.Sprint("w", wait), maxWait: fmt.Sprint(wait)}); a[0].code != code {
					t.Errorf("flows %t: max_wait of %d s: code %d", hasFlows, wait/second, a[0].code)
				}
			}
			due := r.enqueue(nil, entry{id: "later", due: fmt.Sprint(epoch + 100*second)})
			if seen := r.job("later"); due[0].code != 2 || seen.opens != epoch+160*second {
				t.Errorf("flows %t: a job due between two windows: code %d, opens %d", hasFlows, due[0].code, seen.opens-epoch)
			}
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"})
			if a := r.enqueue(nil, entry{id: "unknown"}, entry{id: "wait", maxWait: "1000000"}); a[0].code != 1 || a[0].eta != 0 || a[1].code != 17 || a[1].eta != 0 {
				t.Errorf("flows %t: drained by hand: %+v", hasFlows, a)
			}
			if seen := r.job("j0"); seen.instant != 0 || seen.closed != 1 || seen.opens != 0 {
				t.Errorf("flows %t: drained by hand: %d %d %d", hasFlows, seen.instant, seen.closed, seen.opens)
			}
			r.controlDrain("start", "d1", 5, second, 0, 1)
			if a := r.enqueue(nil, entry{id: "drained"}); a[0].eta == 0 || a[0].eta-r.now() < 20*second {
				t.Errorf("flows %t: during a drain at 5/s the 132nd job leaves in %d µs", hasFlows, a[0].eta-r.now())
			}
		}
	})
}

// A bucket that was never used, too, sends its first job when its window opens, as the receipt says: an interval passes while it is closed.
func TestFirstOpening(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1, ratePer: 100 * second})
		const opens = 3600 * second
		r.setTime(epoch)
		r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"}, stretch{from: opens, kind: "o", opened: opens}, stretch{from: 2 * opens, kind: "c"}, stretch{from: 3 * opens, kind: "x"})
		if got := r.claim(ask{}); len(got.jobs) != 0 || got.next != epoch+opens {
			t.Fatalf("while it is closed: %+v", got)
		}
		if a := r.enqueue(nil, entry{id: "first"})[0]; a.eta != epoch+opens {
			t.Errorf("the receipt says %d µs after the opening", a.eta-epoch-opens)
		}
		r.setTime(epoch + opens - 100_000)
		slots(t, r.claim(ask{}), epoch+opens, 0)
	})
}

// sendOne has the bucket send a job from that time on, so that there is a pace.
func (r *rig) sendOne(at int64) {
	r.t.Helper()
	r.setTime(at)
	r.putIn("", 3, 0, fmt.Sprint("before", at))
	for range 100 {
		if c := r.claimAll(ask{}); len(c.jobs) > 0 {
			r.settleAll(done, c.jobs...)
			return
		}
		r.pass(second)
	}
	r.t.Fatalf("%s", "it does not leave")
}

// A job that spills into the next window is told the even rate of the jobs that are left for it.
func TestETAInTheNextWindowWithAFinish(t *testing.T) {
	onBothForLong(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			if hasFlows {
				r.configureFlows(settings{rateCount: 4, ratePer: 60 * second}, flowSettings{})
			} else {
				r.configure(settings{rateCount: 4, ratePer: 60 * second})
			}
			const next = 600 * second
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: -100 * second, kind: "c"}, stretch{from: 0, kind: "o", opened: -1, finish: 59 * second}, stretch{from: 60 * second, kind: "c"},
				stretch{from: next, kind: "o", opened: next, finish: next + 60*second}, stretch{from: next + 60*second, kind: "c"}, stretch{from: 3 * next, kind: "x"})
			r.sendOne(epoch - 500*second)
			r.setTime(epoch - 60*second)
			ids := numbered(8)
			r.putIn("", 3, 0, ids...)
			// Four leave in the first window at the rate of the bucket, and four in the next, evenly.
			want := []int64{0, 15 * second, 30 * second, 45 * second, next, next + 59*second/3, next + 2*59*second/3, next + 59*second}
			for i, id := range ids {
				if hasFlows && i == 0 {
					continue // a flow counts itself as one ahead
				}
				if got := r.job(id).instant - epoch; got < want[i]-1 || got > want[i]+1 {
					t.Errorf("flows %t: job %d is told %d µs, want %d", hasFlows, i, got, want[i])
				}
			}
			left := 0
			for r.now() < epoch+next+60*second && left < len(ids) {
				c := r.claimAll(ask{})
				for _, job := range c.jobs {
					if got := job.slot - epoch; got < want[left]-2 || got > want[left]+2 {
						t.Errorf("flows %t: job %d leaves at %d µs, want %d", hasFlows, left, got, want[left])
					}
					left++
				}
				if len(c.jobs) > 0 {
					r.settleAll(done, c.jobs...)
				}
				r.pass(100_000)
				if r.now() > epoch+61*second && r.now() < epoch+next-second {
					r.setTime(epoch + next - second)
				}
			}
			must.Equal(t, left, len(ids), "flows %t: jobs left", hasFlows)
		}
	})
}

// A receipt tells the place of a job in an even stream until the finish. It may leave earlier, as jobs that come later raise the rate: so
// max_wait and Retry-After rest on the rate of the bucket.
func TestFinishRefusesWhatCannotLeaveInTime(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		const end = 101 * second
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			if hasFlows {
				r.configureFlows(settings{rateCount: 2, capacity: 10}, flowSettings{})
			} else {
				r.configure(settings{rateCount: 2, capacity: 10})
			}
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: -100 * second, kind: "c"}, stretch{from: 0, kind: "o", opened: -1, finish: end}, stretch{from: end, kind: "c"}, stretch{from: 2 * end, kind: "x"})
			r.sendOne(epoch - 500*second)
			r.setTime(epoch)
			for i := range 4 {
				r.putIn("", 3, 0, fmt.Sprint("j", i))
			}
			c := r.claimAll(ask{})
			must.Be(t, len(c.jobs), 1, "jobs leave at once")
			r.settleAll(done, c.jobs...)
			r.pass(second)
			// 3 wait, and leave 25 s apart: the next one would be the last, at the finish. At 2/s it leaves within 2 s.
			a := r.enqueue(nil, entry{id: "no", maxWait: fmt.Sprint(second)}, entry{id: "yes", maxWait: fmt.Sprint(2 * second)}, entry{id: "more"})
			if a[0].code != 17 || a[0].eta <= r.now()+second || a[0].eta > r.now()+2*second || a[0].wait > second {
				t.Errorf("flows %t: refused as too late: %+v", hasFlows, a[0])
			}
			if a[1].code != 1 || a[1].eta < epoch+70*second || a[2].code != 1 || a[2].eta < a[1].eta {
				t.Errorf("flows %t: %+v", hasFlows, a[1:])
			}
			r.putIn("", 3, 0, named("after", 5)...)
			if full := r.enqueue(nil, entry{id: "full"})[0]; full.code != 7 || full.wait > second || full.wait < second/2 {
				t.Errorf("flows %t: a full bucket: %+v", hasFlows, full)
			}
		}
	})
}
