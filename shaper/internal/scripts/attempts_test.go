package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// try claims the job and settles it so. It fails if another job comes, or none.
func (r *rig) try(id string, o outcome) {
	r.t.Helper()
	c := r.claim(ask{})
	if r.withFlows() > 0 {
		r.t.Fatalf("try is for buckets without flows")
	}
	if c.ids() != id {
		r.t.Fatalf("claimed %q, want %q; died %+v", c.ids(), id, c.died)
	}
	o.lease = c.jobs[0]
	must.Be(r.t, r.settle(o)[0], 1, "%s was not settled", id)
	r.pass(second)
}

func (r *rig) wantAttempts(what, id, want string) {
	r.t.Helper()
	must.Equal(r.t, r.attempts()[id], want, "%s: attempts of %s are", what, id)
	must.Equal(r.t, r.job(id).attempts, want, "%s: inspect_job says of %s", what, id)
}

// The first time and the last lines of a job are kept, of every outcome but done and returned.
func TestAttemptsAreKept(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.obeyAttempts(2, 0)
		r.put("a")
		r.try("a", outcome{result: returned})
		r.wantAttempts("returned", "a", "")
		at := r.now()
		line := func(n int) string { return fmt.Sprintf(`{"at":%d,"number":%d}`, at, n) }
		r.try("a", outcome{result: retry, attempt: line(1)})
		r.wantAttempts("one", "a", fmt.Sprintf("%d\n%s", at, line(1)))
		r.try("a", outcome{result: retry, attempt: line(2)})
		r.try("a", outcome{result: returned})
		r.try("a", outcome{result: retry, attempt: line(3)})
		r.wantAttempts("the last two", "a", fmt.Sprintf("%d\n%s\n%s", at, line(2), line(3)))
		r.obeyAttempts(0, 0)
		r.try("a", outcome{result: retry, attempt: line(4)})
		r.wantAttempts("none", "a", fmt.Sprint(at))
		r.obeyAttempts(1, 0)
		r.try("a", outcome{result: dead, attempt: line(5)})
		r.wantAttempts("dead", "a", fmt.Sprintf("%d\n%s", at, line(5)))
		r.wantBytesOfDead()

		// A held job has attempts, and none that counts. Its first one was no later than now, whatever a dispatcher says.
		r.put("b")
		now := r.now()
		r.try("b", outcome{result: wasHeld, attempt: fmt.Sprintf(`{"at":%d}`, now+3600*second)})
		first := r.attempts()["b"]
		var seen int64
		if _, err := fmt.Sscan(first, &seen); err != nil || seen < now || seen > r.now() {
			t.Errorf("held: %q, want a time from %d on", first, now)
		}
		if meta := r.job("b").meta; !strings.HasPrefix(meta, "1 1 0 1 0 ") && !strings.HasPrefix(meta, "4 1 0 1 0 ") {
			t.Errorf("held: meta %q", meta)
		}
	})
}

// A text has 2 KiB at most: the oldest lines go, and a line that does not fit alone.
func TestAttemptsAreBounded(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.obeyAttempts(20, 0)
		r.put("a")
		for n := range 20 {
			line := fmt.Sprintf(`{"at":%d,"number":%d,"detail":%q}`, r.now(), n, strings.Repeat("x", 200))
			r.try("a", outcome{result: retry, attempt: line})
			if text := r.attempts()["a"]; len(text) > 2048 || !strings.HasSuffix(text, "\n"+line) || n == 19 && strings.Count(text, "\n") < 7 {
				t.Fatalf("%d bytes after %d attempts: %s", len(text), n+1, text)
			}
		}
		first, _, _ := strings.Cut(r.attempts()["a"], "\n")
		r.try("a", outcome{result: retry, attempt: `{"detail":"` + strings.Repeat("x", 2040) + `"}`})
		r.wantAttempts("too long", "a", first)
	})
}

// Attempts go with their job, whatever ends it.
func TestAttemptsGoWithTheJob(t *testing.T) {
	ends := map[string]func(r *rig){
		"done":      func(r *rig) { r.try("a", outcome{result: done}) },
		"cancelled": func(r *rig) { r.cancel("a", "") },
		"purged":    func(r *rig) { r.purgeAll(purge{id: "p"}) },
		"dropped": func(r *rig) {
			r.try("a", outcome{result: dead})
			r.cancel("a", "5")
		},
		"trimmed": func(r *rig) {
			r.try("a", outcome{result: dead})
			r.boundDead(0, 0, 1, false)
			r.trim(10, 1<<20)
		},
		"deleted by hand": func(r *rig) {
			r.hdel("body", "a")
			r.compare()
		},
	}
	onBoth(t, func(t *testing.T, r *rig) {
		for name, end := range ends {
			r.name = strings.ReplaceAll(name, " ", "-")
			r.configure(settings{})
			r.obeyAttempts(3, 0)
			r.put("a")
			r.try("a", outcome{result: retry})
			if len(r.attempts()) != 1 {
				t.Errorf("%s: %q", name, r.attempts())
			}
			end(r)
			if r.exists("attempts") != 0 {
				t.Errorf("%s: left %q", name, r.attempts())
			}
			must.Equal(t, r.sweep(sweep{none: true, cursor: "0"}).cursor, "0", "%s: the comparison goes on at", name)
		}
	})
}

// A redrive begins anew: the lines stay, and the time of the first attempt is that of the next.
func TestRedriveKeepsAttempts(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.obeyAttempts(2, 0)
		r.put("a")
		r.try("a", outcome{result: dead, attempt: `{"at":1783228800000000}`})
		r.redrive("a")
		r.wantAttempts("redriven", "a", "\n{\"at\":1783228800000000}")
		at := r.now()
		line := fmt.Sprintf(`{"at":%d}`, at)
		r.try("a", outcome{result: dead, attempt: line})
		r.wantAttempts("tried again", "a", fmt.Sprintf("%d\n{\"at\":1783228800000000}\n%s", at, line))
		r.obeyAttempts(0, 0)
		r.redrive("a")
		r.try("a", outcome{result: dead})
		r.redrive("a")
		r.wantAttempts("without lines", "a", "")
		r.wantBytesOfDead()
	})
}

// A job whose first attempt was max_age ago is dead when its turn comes, and takes no slot. Time before the first attempt
// and lost deliveries do not count.
func TestMaxAge(t *testing.T) {
	const maxAge = 60 * second
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10})
		r.obeyAttempts(2, maxAge)
		r.put("a")
		r.pass(10 * maxAge)
		r.claim(ask{})
		r.end("a")
		r.sweep(sweep{})
		r.pass(10 * maxAge)
		at := r.now()
		r.try("a", outcome{result: retry, attempt: fmt.Sprintf(`{"at":%d}`, at), last: `{"status":500,"body":"x"}`})
		r.setTime(at + maxAge - second)
		r.try("a", outcome{result: retry, last: `{"status":503,"body":"x"}`})
		r.setTime(at + maxAge)
		r.put("next", "other")
		c := r.claim(ask{horizon: 1})
		if c.ids() != "next" || c.expired != 1 || fmt.Sprint(c.died) != "[{-1 a  2}]" {
			t.Errorf("claimed %q, %d expired, died %+v", c.ids(), c.expired, c.died)
		}
		j := r.job("a")
		if _, last, _ := strings.Cut(j.meta, `{`); j.state != isDead || last != `"cause":"max-age","status":503,"body":"x"}` {
			t.Errorf("%+v", j)
		}
		must.Equal(t, strings.Count(j.attempts, "\n"), 2, "attempts %q", j.attempts)
		r.wantBytesOfDead()
		if r.inspect().unfinished != 2 {
			t.Errorf("%+v", r.inspect())
		}

		// What a redrive brings back is young again, and a bucket without max_age gives up nothing.
		r.settle(outcome{lease: c.jobs[0], result: done})
		r.try("other", outcome{result: done})
		r.redrive("a")
		r.try("a", outcome{result: retry, last: `{"cause":"max-age"}`})
		r.obeyAttempts(2, 0)
		r.pass(10 * maxAge)
		r.try("a", outcome{result: retry})
		r.obeyAttempts(2, maxAge)
		if c := r.claim(ask{}); len(c.died) != 1 {
			t.Errorf("claimed %+v", c)
		}
		if j := r.job("a"); !strings.HasSuffix(j.meta, ` {"cause":"max-age"}`) {
			t.Errorf("%+v", j)
		}
	})
}

// The same with flows: of jobs that were held again and again, and of an expired job that is told with its reason.
func TestMaxAgeWithFlows(t *testing.T) {
	const maxAge = 60 * second
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 10}, flowSettings{})
		r.obeyAttempts(2, maxAge)
		r.claimFlows(ask{}, reserved{})
		r.putIn("f", 3, 0, "a", "b")
		r.pass(second)
		for _, job := range r.drain(ask{}).jobs {
			r.settle(outcome{lease: job, result: retry, delay: 2 * second})
		}
		r.putIn("f", 3, second, "c")
		r.pass(maxAge)
		c := r.drain(ask{})
		var told []string
		for _, d := range c.died {
			told = append(told, fmt.Sprintf("%s %d %s %d", d.id, d.why, d.flow, d.attempts))
		}
		if len(c.jobs) > 0 || c.expired != 3 || strings.Join(told, ", ") != "a -1 f 1, b -1 f 1, c 0 f 0" {
			t.Errorf("claimed %q, %d expired, died %q", c.ids(), c.expired, told)
		}
		r.wantStates(map[string]int64{"a": isDead, "b": isDead, "c": isDead})
		must.Equal(t, r.flowState("f"), "", "the flow is kept")
		r.wantBytesOfDead()
	})
}

// The probe of a breaker spends no attempt: it is listed as held, and a job whose last attempt it would be lives on.
func TestAttemptsOfProbes(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const spent = 7
		r.configure(settings{rateCount: 1000})
		r.obeyAttempts(5, 0)
		r.hset("settings", "downstream", fmt.Sprintf("b %d 5 1 %d %d", 60*second, second, 10*second))
		r.put("a")
		fail := func(result int) int64 {
			t.Helper()
			c := r.claim(ask{})
			must.Be(t, c.ids(), "a", "claimed, next %d", c.next-c.now)
			return r.settle(outcome{
				lease: c.jobs[0], result: result, signal: 3, reason: "http_500", claimedAt: c.now, last: `{"cause":"attempts-exhausted","status":500}`,
				attempt: fmt.Sprintf(`{"at":%d,"number":%d,"result":"dead"}`, c.now, c.jobs[0].number),
			})[0]
		}
		must.Equal(t, fail(retry), 1, "the first failure")
		r.pass(30 * second)
		must.Equal(t, fail(spent), 2, "the probe")
		j := r.job("a")
		if j.state != isQueued || !strings.HasSuffix(j.meta, ` {"status":500}`) || !strings.HasSuffix(j.attempts, `"number":2,"result":"held"}`) ||
			strings.Count(j.attempts, `"dead"`) != 1 {
			t.Errorf("%+v", j)
		}
	})
}
