package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

func TestClaimOfAnUnknownBucket(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("j1")
		r.del("settings")
		in := luaReader(r, "claim")
		if in.Int() != 1 || in.Left() != 0 {
			t.Errorf("a bucket without conf was claimed from")
		}
	})
}

// A new bucket starts empty: its first slot is one interval away, however
// large its burst. The pace of before has nothing to say after a failover.
func TestMissingPaceStartsEmpty(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 50, ratePer: second, burst: 10})
		r.put(numbered(20)...)
		for round := range 2 {
			c := r.claim(ask{horizon: 100_000})
			slots(t, c, c.now, 20_000, 40_000, 60_000, 80_000, 100_000)
			must.Equal(t, c.next-c.now, 120_000, "round %d: next in µs", round)
			r.del("pace")
		}
	})
}

func slots(t *testing.T, c claimed, base int64, want ...int64) {
	t.Helper()
	var got []int64
	for _, job := range c.jobs {
		got = append(got, job.slot-base)
	}
	must.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "slots %v, want %v", got, want)
}

func TestFractionIsCarried(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		for _, rate := range []struct{ count, per, n int64 }{
			{30_000, second, 3000}, {7, 60 * second, 70}, {50_000, second, 3000}, {999_983, second, 1000}, {3, 100 * second, 9},
		} {
			r := r.fresh(t, fmt.Sprintf("r%d", rate.count))
			r.configure(settings{rateCount: rate.count, ratePer: rate.per, capacity: 10_000, inFlight: 10_000})
			n := max(atLength(rate.n, 5), 9)
			r.put(numbered(int(n))...)
			var first, last, late, next int64 // claims are late where the machine stalls
			for taken := int64(0); taken < n; {
				c := r.claim(ask{want: 1000})
				if next != 0 {
					late += max(c.now-next, 0)
				}
				next = c.next
				for _, job := range c.jobs {
					if taken++; taken == 1 {
						first = job.slot
					}
					last = job.slot
				}
				r.pass(max(c.next-r.now()-150_000, 0))
			}
			// From the first slot to the last n-1 intervals, each end rounded to a microsecond.
			if got, want := last-first, (n-1)*rate.per/rate.count; got < want-1 || got > want+late+1 {
				t.Errorf("%d slots at %d/%d µs take %d µs, want %d, and the claims were %d late", n, rate.count, rate.per, got, want, late)
			}
		}
	})
}

func TestSlotTooFarAheadIsCut(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10, ratePer: second, burst: 3})
		r.put(numbered(9)...)
		set := func(ahead int64) { r.hset("pace", "slot", r.now()+ahead, "frac", 0) }
		set(3600 * second)
		c := r.claim(ask{})
		// The last slot becomes now + horizon + burst, and the next is an interval on.
		if len(c.jobs) != 0 || c.next-c.now != 300_000 {
			t.Errorf("next in %d µs, jobs %s", c.next-c.now, c.ids())
		}
		r.pass(150_000)
		c = r.claim(ask{})
		if len(c.jobs) != 1 || c.jobs[0].slot-c.now > 150_000 {
			t.Errorf("after 150 ms: %+v", c)
		}
	})
}

func TestSameClaimAnswersTheSame(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put(numbered(6)...)
		first := r.claim(ask{claim: "c1", want: 4})
		r.putAt("+1", "due")
		again := r.claim(ask{claim: "c1", want: 4})
		if fmt.Sprint(first.jobs) != fmt.Sprint(again.jobs) || len(again.jobs) != 4 || again.next != again.now {
			t.Errorf("first %+v\nagain %+v", first, again)
		}
		// Another dispatcher with the same claim id is another claim, and so is a longer id.
		if c := r.claim(ask{claim: "c1", dispatcher: "e", want: 1}); c.ids() != "j4" && c.ids() != "due" {
			t.Errorf("another dispatcher got %q", c.ids())
		}
		if c := r.claim(ask{claim: "c", want: 1}); len(c.jobs) != 1 || strings.Contains(first.ids(), c.ids()) {
			t.Errorf("another claim got %q", c.ids())
		}
	})
}

func TestReplayOmitsWhatWasTakenBack(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put(numbered(5)...)
		first := r.claim(ask{claim: "c1"})
		r.settle(outcome{lease: first.jobs[4], result: done})
		r.end("j1", "j2")
		if s := r.sweep(sweep{}); s.takenBack != 2 {
			t.Fatalf("swept %+v", s)
		}
		must.Equal(t, r.claim(ask{claim: "c1"}).ids(), "j0 j3", "replay")
		other := r.claim(ask{claim: "o1", dispatcher: "other"})
		if other.ids() != "j1 j2" || other.jobs[0].number != 2 || other.jobs[0].epoch != 2 {
			t.Errorf("the other dispatcher got %+v", other.jobs)
		}
		must.Equal(t, r.claim(ask{claim: "c1"}).ids(), "j0 j3", "replay after the others were claimed again")
	})
}

func TestCancelledJobsTakeNoSlot(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100, ratePer: second, burst: 1, dedupe: -1, capacity: 10_000})
		const n = 700
		r.put(numbered(n)...)
		all := r.elements(queueKey)
		for i, id := range all {
			if i%100 != 50 {
				r.cancel(id, "")
			}
		}
		r.del(queueKey)
		r.rpush(queueKey, all) // as of a list that is too long to be searched
		r.hset("pace", "slot", r.now(), "frac", 0)
		c := r.claim(ask{want: 1000, horizon: 200_000})
		must.Equal(t, c.ids(), "j50 j150 j250 j350 j450 j550 j650", "claimed")
		for i := 1; i < len(c.jobs); i++ {
			must.Equal(t, c.jobs[i].slot-c.jobs[i-1].slot, 10_000, "slot %d is µs after the one before", i)
		}
		if b := r.inspect(); b.waiting != 0 || b.unfinished != 7 {
			t.Errorf("bucket %+v", b)
		}
	})
}

// A slow bucket of large jobs with many free workers: a claim reads no bodies
// that it has no slot for. (Reading 256 of 256 KiB takes Redis 300 ms.)
func TestClaimReadsNoMoreThanItHandsOut(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{rateCount: 10, ratePer: second})
	r.put(numbered(200)...)
	r.ok(r.c.Do(r.ctx, "config", "resetstat").Err())
	for _, past := range []int64{0, 3600 * second} {
		r.hset("pace", "slot", r.now()-past, "frac", 0, "last", r.now()-past)
		if c := r.claim(ask{want: 200, horizon: 150_000}); len(c.jobs) < 1 || len(c.jobs) > 2 {
			t.Errorf("claimed %q", c.ids())
		}
	}
	r.hset("pace", "slot", r.now()+150_000, "frac", 0, "last", r.now()+150_000)
	if c := r.claim(ask{want: 200}); len(c.jobs) != 0 || c.next < c.now+200_000 {
		t.Errorf("claimed %q, next in %d µs", c.ids(), c.next-c.now)
	}
	if calls, err := r.c.Info(r.ctx, "commandstats").Result(); err != nil || strings.Contains(calls, "cmdstat_lrange:calls=3") {
		t.Errorf("the list was read without a slot: %v", err)
	}
}

// More tombstones than a claim looks at: it comes back at once for the rest.
func TestManyTombstones(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		for range 3 {
			ids := make([]any, 2500)
			for i := range ids {
				ids[i] = fmt.Sprint("gone", i)
			}
			r.rpush(queueKey, ids...)
		}
		r.put("live")
		c := r.claim(ask{want: 1000})
		if len(c.jobs) != 0 || c.next != c.now {
			t.Errorf("first claim %+v", c)
		}
		if c = r.claim(ask{want: 1000}); c.ids() != "live" {
			t.Errorf("second claim %+v", c)
		}
	})
}

// A job that is cancelled deep in a long list leaves its id there. The same id enqueued again after
// its dedupe window is delivered once, and not before it is due.
func TestCancelAndEnqueueAgain(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		for _, due := range []string{"", "+60000000"} {
			r := r.fresh(t, "due"+due)
			r.configure(settings{dedupe: -1, rateCount: 10_000})
			r.put("before", "j", "after")
			must.Be(t, r.cancelDeep("j"), isCancelled, "cancel")
			r.putAt(due, "j")
			c := r.claim(ask{})
			if due == "" && c.ids() != "before j after" {
				t.Errorf("claimed %q", c.ids())
			}
			if due != "" {
				must.Equal(t, c.ids(), "before after", "claimed, j is not due")
				r.wantStates(map[string]int64{"j": isScheduled})
				r.pass(60*second + 1)
				more := r.claim(ask{})
				must.Equal(t, more.ids(), "j", "claimed when j is due")
				c.jobs = append(c.jobs, more.jobs...)
			}
			for _, job := range c.jobs {
				must.Equal(t, fmt.Sprint(r.settle(outcome{lease: job, result: done})), "[1]", "%s was not settled", job.id)
			}
			if c := r.claim(ask{}); len(c.jobs) != 0 || c.next != 0 {
				t.Errorf("delivered again: %+v", c)
			}
			if b := r.inspect(); b.unfinished != 0 || b.waiting != 0 || b.later != 0 || b.scheduled != 0 || b.inFlight != 0 {
				t.Errorf("bucket is not empty: %+v", b)
			}
		}
	})
}

func TestMaxInFlight(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100_000, inFlight: 3})
		r.put(numbered(5)...)
		first := r.claim(ask{})
		must.Equal(t, first.ids(), "j0 j1 j2", "claimed")
		if c := r.claim(ask{dispatcher: "other"}); len(c.jobs) != 0 || c.next != -1 {
			t.Errorf("beyond the bound: %+v", c)
		}
		r.settle(outcome{lease: first.jobs[1], result: done})
		must.Equal(t, r.claim(ask{}).ids(), "j3", "one place was free, claimed")
	})
}

func TestDueJobsGoFirst(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100, ratePer: second})
		r.hset("pace", "slot", r.now(), "frac", 0)
		r.put("a", "b", "c", "d", "e")
		r.putAt("+1", "due")
		r.putAt("+45000", "soon")
		r.putAt("+300000", "far")
		r.pass(2)
		soon := r.job("soon").instant
		c := r.claim(ask{lead: 1000, horizon: 200_000})
		ids := strings.Split(c.ids(), " ")
		if len(ids) != 7 || ids[0] != "due" {
			t.Errorf("claimed %v", ids)
		}
		for i, job := range c.jobs {
			if job.slot < c.now+1000 {
				t.Errorf("%s: slot %d µs from now, the lead is 1000", job.id, job.slot-c.now)
			}
			if job.id == "soon" && (i < 3 || job.slot < soon) {
				t.Errorf("soon is number %d, %d µs from when it is due", i, job.slot-soon)
			}
		}
		if c.next < c.now+250_000 || c.next > c.now+300_000 {
			t.Errorf("next in %d µs, want when far is due", c.next-c.now)
		}
	})
}

// A job that is due when nothing else waits leaves at its due time, not before.
func TestDelayedJobLeavesWhenDue(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		due := r.now() + 100_000
		r.putAt(fmt.Sprint(due), "j")
		if c := r.claim(ask{horizon: 50_000}); len(c.jobs) != 0 || c.next != due {
			t.Errorf("claimed %q, next %d, want %d", c.ids(), c.next, due)
		}
		if c := r.claim(ask{}); c.ids() != "j" || c.jobs[0].slot != due {
			t.Errorf("claimed %+v, want slot %d", c.jobs, due)
		}
	})
}

func TestNext(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10, ratePer: second, inFlight: 100})
		must.Equal(t, r.claim(ask{}).next, 0, "nothing to do: next")
		r.put(numbered(9)...)
		base := r.now()
		r.hset("pace", "slot", base, "frac", 0)
		c := r.claim(ask{want: 1})
		if c.next != base+200_000 && c.next != c.now {
			t.Errorf("more slots than were wanted: next %d µs after the last slot", c.next-base)
		}
		c = r.claim(ask{})
		if n := int64(len(c.jobs)); c.next != base+(n+2)*100_000 {
			t.Errorf("next slot is %d µs after the base, with %d jobs", c.next-base, n)
		}
	})
}

// The last slot is stored, not the next: a new rate holds at once.
func TestRateChange(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1, ratePer: 3600 * second})
		r.put(numbered(9)...)
		last := r.now() + 50_000 // no more than a claim looks ahead
		r.hset("pace", "slot", last, "frac", 0)
		if c := r.claim(ask{}); len(c.jobs) != 0 || c.next != last+3600*second {
			t.Errorf("slow: %+v", c)
		}
		r.configure(settings{rateCount: 50, ratePer: second, revision: 1})
		if c := r.claim(ask{want: 3}); len(c.jobs) != 3 || c.jobs[0].slot != last+20_000 || c.jobs[2].slot != last+60_000 {
			t.Errorf("fast: %+v, want slots from %d", c, last+20_000)
		}
	})
}
