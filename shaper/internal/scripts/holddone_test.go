package scripts_test

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A downstream accepts a job, and says that it accepts nothing more for a time: the job is done, its scope sends nothing until then, and
// the rate stays as it is. Sent again, the outcome changes nothing.
func TestHoldOfADoneJob(t *testing.T) {
	listening(t, "60000000 10 3 1000000 4000000", func(t *testing.T, l *listener) {
		l.put("a", "b", "c")
		jobs := l.take(1).jobs
		l.answer(jobs[0], done, accepted, 3*second)
		until := l.now() + 3*second
		must.Equal(t, l.settle(outcome{lease: jobs[0], result: done, delay: 9 * second, signal: accepted, claimedAt: l.now()})[0], 0, "it was settled twice")
		must.Equal(t, l.number(fieldRateCount), 0, "the rate was cut to")
		for range 3 {
			if c := l.take(5); len(c.jobs) > 0 || c.next < until || c.next > until+second/100 {
				t.Errorf("%d jobs %d µs before the hold is over, next in %d", len(c.jobs), until-c.now, c.next-c.now)
			}
			l.pass(second)
		}
		c := l.take(5)
		if c.ids() != "b c" || c.jobs[0].slot < until || c.jobs[0].number != 1 {
			t.Errorf("got %+v", c.jobs)
		}
		l.pass(second)
		for _, job := range c.jobs {
			l.answer(job, done, accepted, 0)
		}
		l.silent("after the hold")
		l.put("d")
		l.answer(l.take(1).jobs[0], done, accepted, 3600*second)
		must.Equal(t, l.number(fieldTill)-l.now(), 60*second, "held for µs, and the longest hold is 60 s")
	})
}

// A claim tells of which jobs an earlier attempt may have taken effect, and tells it again when it is repeated.
func TestJobsInDoubt(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100})
		want := map[string]bool{}
		for id, last := range map[string]string{
			"timeout": `{"reason":"timeout"}`, "http_504": `{"status":504,"reason":"http_504"}`, "http_408": `{"status":408}`, "http_409": `{"status":409}`,
			"http_429": `{"status":429}`, "http_200": `{"status":200,"body":"{\"status\":504"}`, "crash": "", "unsent": "", "first": "",
		} {
			want[id] = id == "timeout" || id == "http_504" || id == "http_408" || id == "http_409" || id == "crash"
			if id == "first" {
				continue
			}
			r.put(id)
			job := r.claim(ask{want: 1}).jobs[0]
			switch id {
			case "crash":
				r.end(id)
				r.sweep(sweep{})
			case "unsent":
				r.settle(outcome{lease: job, result: returned, claimedAt: r.now()})
			default:
				r.settle(outcome{lease: job, result: wasHeld, signal: 0, last: last, claimedAt: r.now()})
			}
			r.pass(second)
			job = r.claim(ask{want: 1, claim: "claim-" + id}).jobs[0]
			again := r.claim(ask{want: 1, claim: "claim-" + id}).jobs
			if job.id != id || job.inDoubt != want[id] || len(again) != 1 || again[0].inDoubt != want[id] {
				t.Errorf("%s: in doubt %t, again %v; want %t", id, job.inDoubt, again, want[id])
			}
			r.settle(outcome{lease: job, result: done, signal: accepted, claimedAt: r.now()})
			r.pass(second)
		}
	})
}
