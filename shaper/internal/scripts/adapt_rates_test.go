package scripts_test

import (
	"fmt"
	"strings"
	"testing"
)

// receiver takes so many requests in each second, and refuses the others.
type receiver struct {
	limit  int64
	resets bool // a refusal names the time until the next second, in whole seconds

	second, n         int64
	accepted, refused int64
}

// at is the answer to a request at that time.
func (a *receiver) at(at int64) (taken bool, wait int64) {
	if s := at / second; s != a.second {
		a.second, a.n = s, 0
	}
	if a.n < a.limit {
		a.n++
		a.accepted++
		return true, 0
	}
	a.refused++
	if a.resets {
		wait = second
	}
	return false, wait
}

// arrival is a request, and what its receiver says.
type arrival struct {
	lease
	claimedAt, wait int64
	taken           bool
}

func (a arrival) outcome() outcome {
	o := outcome{lease: a.lease, result: done, signal: accepted, claimedAt: a.claimedAt}
	if a.taken {
		return o
	}
	o.result, o.signal, o.reason, o.delay = wasHeld, throttled, "http_429", a.wait
	if a.wait == 0 {
		o.result = 9 // dropped: it is not to come back
	}
	return o
}

// drive has a bucket with a backlog send to a receiver for a time. Answers come some 100 ms after a request. It returns how many requests
// a second are accepted, and how many are refused.
func (l *listener) drive(to *receiver, seconds int64) (acceptedRate, refusedRate float64) {
	l.t.Helper()
	const tick = 50_000
	var flying []arrival
	before, start := *to, l.now()
	backlog := l.inspect().unfinished
	for l.now() < start+seconds*second {
		var answers []outcome
		for len(flying) > 0 && flying[0].slot+2*tick <= l.now() {
			answers = append(answers, flying[0].outcome())
			flying = flying[1:]
		}
		if len(answers) > 0 {
			l.settle(answers...)
		}
		if backlog < 50 {
			ids := make([]string, 200)
			for i := range ids {
				ids[i] = fmt.Sprint("r", nextClaim())
			}
			l.put(ids...)
			backlog += int64(len(ids))
		}
		now := l.now()
		for _, job := range l.takeFor(tick).jobs {
			a := arrival{lease: job, claimedAt: now}
			a.taken, a.wait = to.at(job.slot)
			flying = append(flying, a)
			if a.taken || a.wait == 0 {
				backlog--
			}
		}
		l.pass(tick)
	}
	for _, a := range flying {
		l.settle(outcome{lease: a.lease, result: done, signal: accepted, claimedAt: a.claimedAt})
	}
	each := func(n int64) float64 { return float64(n) / float64(seconds) }
	return each(to.accepted - before.accepted), each(to.refused - before.refused)
}

// takeFor claims for the next microseconds.
func (l *listener) takeFor(horizon int64) claimed {
	l.t.Helper()
	if l.withFlows() == 0 {
		return l.claim(ask{want: 50, horizon: horizon})
	}
	return l.drain(ask{want: 50, horizon: horizon})
}

// driving is a bucket with the default rules of answers, alone and with flows, and in both the scope that these have.
func driving(t *testing.T, rate int64, test func(t *testing.T, l *listener)) {
	t.Helper()
	onReal(t, func(t *testing.T, r *rig) {
		for _, flow := range []string{"", "a"} {
			t.Run("flow "+flow, func(t *testing.T) {
				l, letter := &listener{rig: r.fresh(t, "driven"+flow), flow: flow}, "b"
				s := settings{rateCount: rate, capacity: 10_000, dedupe: -1}
				if flow == "" {
					l.configure(s)
					l.text = func() string { return l.field("pace", "down") }
				} else {
					letter = "f"
					l.configureFlows(s, flowSettings{})
					l.text = func() string {
						said, _, _ := strings.Cut(l.field("flows", flow), " ")
						return strings.TrimPrefix(said, "@")
					}
				}
				l.hset("settings", "downstream", letter+" 3600000000 10 10 30000000 600000000")
				test(t, l)
			})
		}
	})
}

// A calendar that is faster than the bucket: the receiver gets what it takes, as behind a bucket that has the calendar's rate.
func TestAdaptiveRateOfAFastCalendar(t *testing.T) {
	t.Parallel()
	driving(t, 10, func(t *testing.T, l *listener) {
		l.obeyTimetable(stretch{from: beforeEpoch, kind: "o", count: 200, per: second})
		got, refused := l.drive(&receiver{limit: 100}, 40)
		t.Logf("%.1f/s accepted, %.1f/s refused", got, refused)
		if got < 60 || refused > 5 {
			t.Errorf("a receiver of 100/s gets %.1f/s, and refuses %.1f/s", got, refused)
		}
		// What was learned at 200/s stays while the bucket is slower, and holds when it is fast again.
		learned := l.number(fieldRateCount)
		l.obeyTimetable(stretch{from: beforeEpoch, kind: "o", count: 20, per: second})
		if got, refused := l.drive(&receiver{limit: 100}, 10); got < 19 || refused > 0 {
			t.Errorf("at 20/s a receiver of 100/s gets %.1f/s, and refuses %.1f/s", got, refused)
		}
		if now := l.number(fieldRateCount); now != learned {
			t.Errorf("at 20/s the rate went from %d to %d", learned, now)
		}
	})
}

// A calendar, or a drain, that is slower than the bucket: the rate is cut below it, not below the bucket's.
func TestAdaptiveRateOfASlowCalendar(t *testing.T) {
	t.Parallel()
	driving(t, 1000, func(t *testing.T, l *listener) {
		drive := func(what string) {
			l.drive(&receiver{limit: 10}, 5)
			got, refused := l.drive(&receiver{limit: 10}, 20)
			t.Logf("%s: %.1f/s accepted, %.1f/s refused", what, got, refused)
			if got < 7.5 || refused > 1 {
				t.Errorf("%s: a receiver of 10/s gets %.1f/s, and refuses %.1f/s", what, got, refused)
			}
		}
		l.obeyTimetable(stretch{from: beforeEpoch, kind: "o", count: 20, per: second})
		drive("calendar")
		l.hdel("settings", "timetable")
		l.hdel("pace", "down")
		l.hdel("flows", "a")
		l.controlDrain("start", "one", 20, second, 0, 0)
		drive("drain")
	})
}

// A receiver that names the time until it takes more, in whole seconds, gets most of what it takes.
func TestAdaptiveRateBesideShortHolds(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{120, 200} {
		driving(t, rate, func(t *testing.T, l *listener) {
			got, refused := l.drive(&receiver{limit: 100, resets: true}, 60)
			t.Logf("%d/s: %.1f/s accepted, %.1f/s refused", rate, got, refused)
			if got < 80 {
				t.Errorf("at %d/s a receiver of 100/s gets %.1f/s, and refuses %.1f/s", rate, got, refused)
			}
		})
	}
}
