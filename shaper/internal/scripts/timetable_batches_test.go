package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A drain is for so many jobs, also where these leave in batches: the last batch is a smaller one.
func TestDrainOfSoManyJobsInBatches(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		for _, hasFlows := range []bool{false, true} {
			r := base.fresh(t, fmt.Sprint("b", hasFlows))
			r.setTime(epoch)
			s := settings{rateCount: 50}
			if hasFlows {
				r.configureFlows(s, flowSettings{})
			} else {
				r.configure(s)
			}
			r.batches(10, 1000, 0)
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "c"})
			r.putIn("", 3, 0, numbered(60)...)
			r.pass(second)
			r.controlDrain("start", "d1", 0, 0, 25, 0)
			jobs, requests := 0, 0
			for range 100 {
				c := r.claimAll(ask{horizon: 50_000, want: 100})
				jobs += len(c.jobs)
				for i, job := range c.jobs {
					if i == 0 || job.batch == 0 || job.batch != c.jobs[i-1].batch {
						requests++
					}
				}
				if len(c.jobs) > 0 {
					r.settleAll(done, c.jobs...)
				}
				r.pass(20_000)
			}
			if state, gone := r.drainNow(); jobs != 25 || requests != 3 || state != "d" || gone != "25" {
				t.Errorf("flows %t: %d jobs left in %d requests, and the drain is %q after %s", hasFlows, jobs, requests, state, gone)
			}
		}
	})
}

// A finish is met with batches, and nobody is told that it will not be, where the rate would not do for jobs one by one.
func TestFinishOfBatches(t *testing.T) {
	onBothForLong(t, func(t *testing.T, r *rig) {
		const end = 50 * second
		r.setTime(epoch)
		r.configure(settings{rateCount: 10, capacity: 10_000, inFlight: 10_000})
		r.batches(50, 1_000_000, 0)
		r.obeyTimetable(stretch{from: -1, kind: "o", opened: -1, finish: end}, stretch{from: end, kind: "c"}, stretch{from: 2 * end, kind: "x"})
		r.put(numbered(1000)...)
		left, last := 0, int64(0)
		for r.now() < epoch+end {
			jobs := r.claim(ask{horizon: 100_000, want: 100}).jobs
			for _, job := range jobs {
				left, last = left+1, job.slot-epoch
			}
			if len(jobs) > 0 {
				r.settleAll(done, jobs...)
			}
			must.Be(t, r.inspect().times[7], 0, "after %d jobs it is shown as late", left)
			r.pass(100_000)
		}
		if left != 1000 || last > end {
			t.Errorf("%d jobs left, the last one at %d of %d µs", left, last, int64(end))
		}
	})
}

// Few requests leave far apart. No step between two of them is taken for a delay, and one that can leave at once is never too late.
func TestFinishOfFewRequests(t *testing.T) {
	onBothForLong(t, func(t *testing.T, base *rig) {
		const end = 240 * second
		for _, c := range []struct {
			name       string
			size, jobs int
			come       int64 // when the jobs do
			rate       int64 // a minute
			isTooSlow  bool
		}{
			{name: "twelve batches", size: 50, jobs: 600, rate: 4},
			{name: "twelve batches and a job", size: 50, jobs: 601, rate: 4},
			{name: "five jobs, one by one", size: 1, jobs: 5, rate: 4},
			{name: "one batch that comes a second before the finish", size: 50, jobs: 50, come: 239 * second, rate: 4},
			{name: "two batches that come before the finish", size: 50, jobs: 100, come: 224 * second, rate: 4},
			{name: "two batches that come too late", size: 50, jobs: 100, come: 226 * second, isTooSlow: true, rate: 4},
		} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			r.configure(settings{rateCount: c.rate, ratePer: 60 * second, capacity: 10_000, inFlight: 10_000})
			if c.size > 1 {
				r.batches(int64(c.size), 1_000_000, 0)
			}
			r.obeyTimetable(stretch{from: -60 * second, kind: "c"}, stretch{from: -1, kind: "o", opened: -1, finish: end}, stretch{from: end, kind: "c"}, stretch{from: 2 * end, kind: "x"})
			r.setTime(epoch - 30*second)
			r.claim(ask{}) // so that there is a pace
			r.setTime(epoch + c.come)
			r.put(numbered(c.jobs)...)
			left, isTooSlow := 0, false
			for r.now() < epoch+end {
				jobs := r.claim(ask{horizon: 100_000}).jobs
				if left += len(jobs); len(jobs) > 0 {
					r.settleAll(done, jobs...)
				}
				if r.inspect().times[7] != 0 {
					isTooSlow = true
					if !c.isTooSlow {
						t.Errorf("%s: after %d jobs, %.1f s before the finish, it is shown as too slow", c.name, left, float64(epoch+end-r.now())/second)
						break
					}
				}
				r.pass(second)
			}
			if isTooSlow != c.isTooSlow || (left == c.jobs) == c.isTooSlow {
				t.Errorf("%s: %d of %d left; too slow %t", c.name, left, c.jobs, isTooSlow)
			}
		}
	})
}

// A backlog is reckoned in batches as full as the last ones were. Without flows, one that took all that waited does not count: it was small for
// want of jobs. One that bytes kept small counts.
func TestBacklogOfBatches(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, c := range []struct {
			name         string
			bytes        int64
			before, jobs int
			want         int64 // requests between the first and the last job
		}{
			{"a batch of one came last", 10_000, 21, 100, 9},
			{"one by one", 10_000, 1, 101, 10},
			{"as many as bytes allow", 30, 80, 120, 39},
		} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			r.configure(settings{rateCount: 1, capacity: 10_000, inFlight: 10_000})
			r.batches(10, c.bytes, 0)
			r.obeyTimetable(stretch{from: beforeEpoch, kind: "o"}, stretch{from: 60 * second, kind: "c"}, stretch{from: 100 * second, kind: "o", opened: 100 * second})
			r.putEach(entries(strings.Join(named("before1", c.before), " "))...)
			left := 0
			for left < c.before {
				got := r.claim(ask{})
				left += len(got.jobs)
				if len(got.jobs) > 0 {
					r.settleAll(done, got.jobs...)
				}
				r.pass(second)
			}
			r.setTime(epoch + 70*second)
			ids := named("jj", c.jobs)
			r.put(ids...)
			first, last := r.job(ids[0]).instant-epoch, r.job(ids[c.jobs-1]).instant-epoch
			if first != 100*second || last != first+c.want*second {
				t.Errorf("%s: the first of %d jobs leaves at %.2f s, the last at %.2f s, want %d s behind it", c.name, c.jobs, float64(first)/second, float64(last)/second, c.want)
			}
		}
	})
}
