package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

const (
	accepted  = 1 // signals of shaper.Signal
	throttled = 2
	failed    = 3
)

// listener is a bucket of 100/s whose answers change the pace of one scope.
type listener struct {
	*rig
	flow string // where jobs are put
	text func() string
}

// listening are the scopes there are. rules are what follows the letter of the scope.
func listening(t *testing.T, rules string, test func(t *testing.T, l *listener)) {
	t.Helper()
	onBoth(t, func(t *testing.T, r *rig) {
		for _, scope := range []string{"bucket", "bucket with flows", "flow", "flow with a rate", "flow in a group", "pool"} {
			t.Run(scope, func(t *testing.T) {
				l := &listener{rig: r.fresh(t, strings.ReplaceAll(scope, " ", "-"))}
				s, letter := settings{rateCount: 100}, "f "
				l.text = func() string { // in front of the text of the flow
					said, _, _ := strings.Cut(l.field("flows", l.flow), " ")
					return strings.TrimPrefix(said, "@")
				}
				ofPace := func() string { return l.field("pace", "down") }
				switch scope {
				case "bucket":
					letter, l.text = "b ", ofPace
					l.configure(s)
				case "bucket with flows":
					letter, l.text, l.flow = "b ", ofPace, "a"
					l.configureFlows(s, flowSettings{})
				case "flow":
					l.flow = "a"
					l.configureFlows(s, flowSettings{})
				case "flow with a rate":
					l.flow, s.rateCount = "a", 1000
					l.configureFlows(s, flowSettings{rateCount: 100})
				case "flow in a group":
					l.flow = path("g", "a")
					l.configureGroups(s, flowSettings{}, flowSettings{})
				case "pool":
					letter, l.pool, s.rateCount = "p ", "vendor", 1000
					l.text = func() string { return l.c.HGet(l.ctx, l.poolKey("pace"), "down").Val() }
					l.configurePool(poolSettings{rateCount: 100})
					l.configure(s)
				}
				l.hset("settings", "downstream", letter+rules)
				l.put("warm") // the pace begins
				for _, job := range l.take(1).jobs {
					l.answer(job, done, accepted, 0)
				}
				l.pass(second)
				test(t, l)
			})
		}
	})
}

// put enqueues jobs of the flow.
func (l *listener) put(ids ...string) {
	l.t.Helper()
	l.putIn(l.flow, 3, 0, ids...)
}

// take claims for the next 200 ms.
func (l *listener) take(want int64) claimed {
	l.t.Helper()
	if l.withFlows() == 0 {
		return l.claim(ask{want: want})
	}
	return l.drain(ask{want: want})
}

// answer settles a job that was claimed now.
func (l *listener) answer(job lease, result, signal int, delay int64) {
	l.t.Helper()
	o := outcome{lease: job, result: result, delay: delay, signal: signal, reason: "http_429", claimedAt: l.now()}
	if got := l.settle(o); got[0] == 0 {
		l.t.Fatalf("%s was not settled", job.id)
	}
}

// number is a field of what the downstream says, -1 if it says nothing.
func (l *listener) number(field int) int64 {
	l.t.Helper()
	fields := strings.Split(l.text(), ",")
	if len(fields) < 14 {
		return -1
	}
	n := must.Get(strconv.ParseInt(fields[field], 10, 64))(l.t)
	return n
}

const (
	fieldTill      = 0
	fieldRateCount = 1
	fieldBreaker   = 3
)

// silent wants that nothing is said any more.
func (l *listener) silent(when string) {
	l.t.Helper()
	if text := l.text(); strings.Contains(text, ",") {
		l.t.Errorf("%s it still says %q", when, text)
	}
}

// A downstream names a time: nothing leaves before, the job that was answered leaves first, and has spent no attempt.
func TestHold(t *testing.T) {
	listening(t, "60000000 100 0 1000000 4000000", func(t *testing.T, l *listener) {
		l.put("a", "b", "c")
		jobs := l.take(1).jobs
		must.Be(t, len(jobs), 1, "jobs")
		l.answer(jobs[0], wasHeld, throttled, 3*second)
		until := l.now() + 3*second
		must.Equal(t, l.settle(outcome{lease: jobs[0], result: wasHeld, delay: 9 * second, signal: throttled, claimedAt: l.now()})[0], 0, "it was settled twice")
		for range 3 {
			c := l.take(5)
			if len(c.jobs) > 0 || c.next < until || c.next > until+second/100 {
				t.Errorf("%d jobs %d µs before the hold is over, next in %d", len(c.jobs), until-c.now, c.next-c.now)
			}
			l.pass(second)
		}
		c := l.take(5)
		if c.ids() != "a b c" || c.jobs[0].slot < until || c.jobs[0].number != 2 || c.jobs[0].attempts != 0 {
			t.Errorf("got %+v", c.jobs)
		}
		l.pass(second)
		for _, job := range c.jobs {
			l.answer(job, done, accepted, 0)
		}
		l.silent("after the hold")
		// A longer one than the longest is cut.
		l.put("d", "e")
		l.answer(l.take(1).jobs[0], wasHeld, throttled, 3600*second)
		must.Equal(t, l.number(fieldTill)-l.now(), 60*second, "held for µs")
	})
}

// A job that is held alone holds nobody else.
func TestHeldAlone(t *testing.T) {
	listening(t, "60000000 100 0 1000000 4000000", func(t *testing.T, l *listener) {
		l.put("a", "b")
		l.answer(l.take(1).jobs[0], 6, 0, 3*second)
		l.pass(second)
		must.Equal(t, l.take(5).ids(), "b", "got")
		l.pass(2 * second)
		if c := l.take(5); c.ids() != "a" || c.jobs[0].attempts != 0 || c.jobs[0].number != 2 {
			t.Errorf("got %+v", c.jobs)
		}
		l.silent("of a job alone")
	})
}

// After failures in a row nothing leaves but a probe, whose failure is no attempt of the job.
func TestBreaker(t *testing.T) {
	listening(t, "60000000 100 3 1000000 4000000", func(t *testing.T, l *listener) {
		l.put("a", "b", "c", "d", "e", "f")
		first := l.take(4).jobs
		l.pass(second)
		l.answer(first[0], retry, failed, 60*second)
		l.answer(first[1], done, accepted, 0)
		l.put("g", "h")
		for i, id := range []string{"c", "d"} {
			must.Be(t, first[i+2].id, id, "claimed %+v", first)
			l.answer(first[i+2], retry, failed, 60*second)
		}
		if l.number(fieldBreaker) != 0 {
			t.Errorf("open after two in a row: %s", l.text())
		}
		l.answer(l.take(1).jobs[0], retry, failed, 60*second) // e
		if l.number(fieldBreaker) != 1 {
			t.Fatalf("not open after three in a row: %s", l.text())
		}
		for _, openFor := range []int64{second, 2 * second, 4 * second, 4 * second} {
			opened := l.now()
			if c := l.take(5); len(c.jobs) > 0 || c.next < opened+openFor {
				t.Errorf("%d jobs while it is open for %d µs, next in %d", len(c.jobs), openFor, c.next-c.now)
			}
			l.pass(openFor)
			probe := l.take(5)
			if probe.ids() != "f" || probe.jobs[0].attempts != 0 {
				t.Fatalf("the probe is %+v, %s", probe.jobs, l.text())
			}
			l.pass(second)
			if c := l.take(5); len(c.jobs) > 0 {
				t.Errorf("%d jobs beside the probe", len(c.jobs))
			}
			if l.number(fieldBreaker) != 2 {
				t.Errorf("not half-open: %s", l.text())
			}
			// Its last attempt too is none.
			o := outcome{lease: probe.jobs[0], result: 7, delay: second, signal: failed, reason: "timeout", claimedAt: l.now() - second}
			l.settle(o)
		}
		l.pass(4 * second)
		probe := l.take(5)
		l.answer(probe.jobs[0], returned, 0, 0) // nothing was sent
		if again := l.take(5); again.ids() != "f" {
			t.Fatalf("after a probe that was not sent: %q, %s", again.ids(), l.text())
		}
		l.pass(31 * second) // its dispatcher died
		l.sweep(sweep{})
		lost := l.take(5)
		if lost.ids() != "f" || lost.jobs[0].attempts != 0 {
			t.Fatalf("after a probe that was lost: %+v, %s", lost.jobs, l.text())
		}
		l.answer(lost.jobs[0], done, accepted, 0)
		if c := l.take(2); len(c.jobs) != 2 || c.jobs[1].slot-c.jobs[0].slot != second/100 {
			t.Errorf("closed, it leaves as %+v", c.jobs)
		}
		l.silent("closed")
	})
}

// Answers that ask for less slow the scope, and those that do not let it recover.
func TestAdaptiveRate(t *testing.T) {
	listening(t, "60000000 10 0 1000000 4000000", func(t *testing.T, l *listener) {
		ids := make([]string, 900)
		for i := range ids {
			ids[i] = fmt.Sprint("j", i)
		}
		l.put(ids...)
		gap := func() int64 {
			c := l.take(2)
			for len(c.jobs) < 2 { // the second one is further away than a claim looks
				l.pass(second / 10)
				more := l.take(2 - int64(len(c.jobs)))
				c.jobs = append(c.jobs, more.jobs...)
			}
			l.pass(max(c.jobs[1].slot-l.now(), 0))
			for _, job := range c.jobs {
				l.answer(job, returned, 0, 0)
			}
			return c.jobs[1].slot - c.jobs[0].slot
		}
		must.Be(t, gap(), second/100, "µs apart")
		one := l.take(2).jobs
		l.pass(second)
		old := outcome{lease: one[1], result: retry, delay: 3600 * second, signal: throttled, claimedAt: l.now() - second}
		l.answer(one[0], retry, throttled, 3600*second)
		if l.number(fieldRateCount) != 50_000 {
			t.Fatalf("cut to %s", l.text())
		}
		// What left before the cut is of the same episode.
		l.settle(old)
		if got := gap(); got != second/50 {
			t.Errorf("%d µs apart after a cut to half: %s", got, l.text())
		}
		// 20 a second are accepted for two seconds, then it asks for less again.
		for range 40 {
			l.answer(l.take(1).jobs[0], done, accepted, 0)
			l.pass(second / 20)
		}
		slowed := l.number(fieldRateCount)
		if want := int64(50_000 + 2*100_000/60); slowed < want-300 || slowed > want {
			t.Errorf("climbed to %d in two seconds, want %d", slowed, want)
		}
		l.answer(l.take(1).jobs[0], retry, throttled, 3600*second)
		if got := l.number(fieldRateCount); got < 16_000 || got > 17_700 { // 0.85 of some 20/s
			t.Errorf("cut to %s", l.text())
		}
		// Never below the floor.
		for range 5 {
			l.pass(second)
			l.answer(l.take(1).jobs[0], retry, throttled, 3600*second)
		}
		if got := l.number(fieldRateCount); got != 10_000 {
			t.Errorf("the floor is %s", l.text())
		}
		for range 60 {
			l.pass(second)
			l.answer(l.take(1).jobs[0], done, accepted, 0)
		}
		l.silent("after a minute of answers")
		must.Equal(t, gap(), second/100, "µs apart in the end")
	})
}

// A flow of which its downstream has said something is not forgotten when its jobs are gone, but in a day.
func TestDownstreamIsRemembered(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 100}, flowSettings{maxFlows: 1})
		r.hset("settings", "downstream", "f 60000000 10 3 1000000 4000000")
		l := &listener{rig: r, flow: "a"}
		l.put("a")
		l.pass(second)
		l.answer(l.take(1).jobs[0], dead, throttled, 0)
		refused := func() bool {
			code := r.enqueue(nil, entry{id: "other", flow: "b"})[0].code
			return code == tooManyFlows
		}
		r.sweep(sweep{})
		if !refused() {
			t.Fatal("the flow was forgotten at once")
		}
		l.pass(23 * 3600 * second)
		if !refused() {
			t.Error("the flow was forgotten in less than a day")
		}
		l.pass(3601 * second)
		if refused() {
			t.Error("the flow was not forgotten in a day")
		}
	})
}
