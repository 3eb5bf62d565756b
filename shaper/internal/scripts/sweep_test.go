package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

func TestSweepTakesBackWhatExpired(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put(numbered(5)...)
		jobs := r.claim(ask{want: 4}).jobs
		r.end("j2", "j0", "j1")
		sub := r.c.Subscribe(r.ctx, "tundish:wake")
		defer sub.Close()
		if s := r.sweep(sweep{}); s.takenBack != 3 || s.poison != 0 || s.missing != 0 || s.cursor != "" {
			t.Errorf("swept %+v", s)
		}
		if s := r.sweep(sweep{}); s.takenBack != 0 {
			t.Errorf("swept again: %+v", s)
		}
		if c := r.claim(ask{}); c.ids() != "j0 j1 j2 j4" || c.jobs[0].number != 2 || c.jobs[0].attempts != 0 {
			t.Errorf("claimed %+v, want them in the order of admission", c.jobs)
		}
		if got := r.extend(second, jobs...); fmt.Sprint(got) != "[0 0 0 1]" {
			t.Errorf("the old holder extended %v", got)
		}
	})
}

// What a dispatcher held when it died comes back in the order of admission,
// whatever its heartbeat and its retries made of the deadlines. A scheduled job
// has the number of the last one that was admitted before it.
func TestSweepKeepsTheOrder(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.putAt("+1", "scheduled")
		r.put(numbered(12)...)
		r.put("unreadable", "last")
		r.pass(2)
		if c := r.claim(ask{}); len(c.jobs) != 15 {
			t.Fatalf("claimed %q", c.ids())
		}
		r.hset("body", "unreadable", "no job of ours")
		r.end("j11", "j3", "j10", "scheduled", "j2", "unreadable", "j9", "j0", "j5")
		if s := r.sweep(sweep{}); s.takenBack != 9 {
			t.Errorf("swept %+v", s)
		}
		list := r.elements(queueKey)
		must.Equal(t, fmt.Sprint(list), "[scheduled unreadable j0 j2 j3 j5 j9 j10 j11]", "the list is")
	})
}

func TestPoison(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		crash := func(s sweep) swept {
			t.Helper()
			c := r.claim(ask{})
			must.Be(t, c.ids(), "j", "claimed")
			r.end("j")
			return r.sweep(s)
		}
		r.put("j")
		for range 2 {
			if s := crash(sweep{}); s.takenBack != 1 || s.poison != 0 {
				t.Errorf("swept %+v", s)
			}
		}
		// An outcome in between, and the count begins anew.
		r.settle(outcome{lease: r.claim(ask{}).jobs[0], result: retry})
		for range 2 {
			crash(sweep{})
		}
		// An outage of Redis is nobody's crash, and a return is no outcome.
		for range 3 {
			if s := crash(sweep{pardon: true}); s.poison != 0 {
				t.Errorf("pardoned: %+v", s)
			}
		}
		r.settle(outcome{lease: r.claim(ask{}).jobs[0], result: returned})
		if s := crash(sweep{}); s.poison != 1 || s.takenBack != 0 {
			t.Errorf("third crash: %+v", s)
		}
		j := r.job("j")
		if j.state != isDead || j.meta[len(j.meta)-18:] != `{"cause":"poison"}` {
			t.Errorf("job %+v", j)
		}
		if b := r.inspect(); b.dead != 1 || b.unfinished != 0 || b.inFlight != 0 || b.waiting != 0 {
			t.Errorf("bucket %+v", b)
		}
		// A redriven job has a fresh record.
		r.redrive("j")
		if s := crash(sweep{}); s.poison != 0 {
			t.Errorf("after a redrive: %+v", s)
		}
	})
}

// When the clock stepped forwards, leases look as if they had run out.
func TestSweepDistrustsTheClock(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		r.claim(ask{})
		r.end("a", "b")
		if s := r.sweep(sweep{bound: r.now() - second}); s.takenBack != 0 {
			t.Errorf("beyond the bound: %+v", s)
		}
		if s := r.sweep(sweep{none: true}); s.takenBack != 0 {
			t.Errorf("none asked for: %+v", s)
		}
		if s := r.sweep(sweep{bound: r.now() + second}); s.takenBack != 2 {
			t.Errorf("within the bound: %+v", s)
		}
	})
}

// A lease beyond its length means that the clock stepped back: it is cut.
func TestLeasesBeyondTheirLength(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		r.claim(ask{lease: 30 * second})
		r.zadd("leases", "a", r.now()+3600*second)
		before := r.job("b").instant
		s := r.sweep(sweep{})
		if a := r.job("a").instant; a != s.now+30*second {
			t.Errorf("lease of a ends in %d µs", a-s.now)
		}
		must.Equal(t, r.job("b").instant, before, "the other lease was touched")
	})
}

// Keys that somebody deleted, or that were evicted, are made good.
func TestRepair(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put("flying", "retrying", "dying", "waiting", "returned")
		c := r.claim(ask{})
		for _, job := range c.jobs {
			switch job.id {
			case "retrying":
				r.settle(outcome{lease: job, result: retry, delay: 60 * second})
			case "dying":
				r.settle(outcome{lease: job, result: dead})
			case "returned", "waiting":
				r.settle(outcome{lease: job, result: returned})
			}
		}
		must.Equal(t, r.compare(), 0, "repairs of a sound bucket")
		states := map[string]int64{"flying": isInFlight, "retrying": isRetrying, "dying": isDead, "waiting": isQueued, "returned": isQueued}
		for _, key := range []string{"leases", laterKey, "dead"} {
			r.del(key)
		}
		must.Equal(t, r.sweep(sweep{none: true}).missing, 3, "missing")
		must.Equal(t, r.compare(), 3, "repairs")
		must.Equal(t, r.sweep(sweep{none: true}).missing, 0, "missing after the repair")
		r.wantStates(states)
		if a := r.job("flying").instant - r.now(); a > 30*second || a < 29*second {
			t.Errorf("the lease that was made good ends in %d µs", a)
		}
		must.Equal(t, r.settle(outcome{lease: c.jobs[0], result: done})[0], 1, "the holder of that lease cannot settle")
		// A retry that is due further ahead than it can be is cut to what it can.
		r.zadd(laterKey, "retrying", r.now()+9000*second)
		if n := r.compare(); n != 1 || r.job("retrying").instant > r.now()+3600*second {
			t.Errorf("%d repairs, due in %d µs", n, r.job("retrying").instant-r.now())
		}
		// A job without a body is no job.
		r.hdel("body", "retrying", "dying", "returned")
		must.Equal(t, r.compare(), 3, "repairs")
		if b := r.inspect(); b.later != 0 || b.dead != 0 || b.unfinished != 1 {
			t.Errorf("bucket %+v", b)
		}
		must.Equal(t, r.claim(ask{}).ids(), "waiting", "claimed")
	})
}

// A deleted claims hash costs nothing but the answer to a resend.
func TestDeletedClaims(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put("a", "b")
		r.claim(ask{claim: "c", want: 1})
		r.del("claims")
		must.Equal(t, r.claim(ask{claim: "c"}).ids(), "b", "claimed")
		r.end("a")
		r.sweep(sweep{})
		must.Equal(t, r.claim(ask{}).ids(), "a", "claimed")
	})
}

// The comparison goes through any number of jobs, in steps.
func TestComparisonOfManyJobs(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const n = 2000
		r.configure(settings{rateCount: 1_000_000, capacity: n, inFlight: n})
		for i := range n / 500 {
			ids := numbered(n)[i*500 : (i+1)*500]
			r.put(ids...)
		}
		for taken := 0; taken < n; {
			taken += len(r.claim(ask{want: 1000}).jobs)
		}
		r.del("leases")
		must.Equal(t, r.compare(), n, "repairs")
		if b := r.inspect(); b.inFlight != n {
			t.Errorf("bucket %+v", b)
		}
	})
}
