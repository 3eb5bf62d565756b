package lua_test

import (
	"fmt"
	"testing"
)

// A receipt and a look at a job tell a departure within the windows, at their rates. Nobody knows when a bucket leaks that is drained by hand.
func TestETAMindsTheTimetable(t *testing.T) {
	t.Parallel()
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
				if got != want {
					t.Errorf("flows %t: job %d leaves at %d µs, want %d", hasFlows, i, got, want)
				}
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
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
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
