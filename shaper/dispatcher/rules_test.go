package dispatcher

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// Results and signals go to settle.lua as they are.
func TestResultsAreThoseOfSettle(t *testing.T) {
	t.Parallel()
	for result, code := range map[shaper.Result]int{
		shaper.ResultDone: lua.Done, shaper.ResultRetry: lua.Retry, shaper.ResultDead: lua.Dead, shaper.ResultReturned: lua.Returned, shaper.ResultHeld: lua.Held,
	} {
		if int(result) != code {
			t.Errorf("%s is %d in Go, %d in Lua", result, result, code)
		}
	}
	for signal, code := range map[shaper.Signal]int{
		shaper.SignalNone: lua.SignalNone, shaper.SignalAccepted: lua.SignalAccepted, shaper.SignalThrottled: lua.SignalThrottled, shaper.SignalFailed: lua.SignalFailed,
	} {
		if int(signal) != code {
			t.Errorf("a signal is %d in Go, %d in Lua", signal, code)
		}
	}
}

func TestClockObserves(t *testing.T) {
	t.Parallel()
	type call struct {
		start, took time.Duration // on our clock
		redis       time.Duration // on that of Redis
		step        time.Duration
	}
	const hour = time.Hour
	for name, calls := range map[string][]call{
		"steady":               {{0, 1, hour, 0}, {time.Second, 1, hour + time.Second, 0}},
		"a slow call":          {{0, time.Millisecond, hour, 0}, {time.Second, 1400 * time.Millisecond, hour + 2300*time.Millisecond, 0}},
		"slow the other way":   {{0, time.Millisecond, hour, 0}, {time.Second, 1400 * time.Millisecond, hour + time.Second, 0}},
		"drift":                {{0, time.Millisecond, hour, 0}, {30 * time.Second, time.Millisecond, hour + 30*time.Second + 15*time.Millisecond, 0}},
		"a step forwards":      {{0, 0, hour, 0}, {time.Second, 0, 2*hour + time.Second, hour}, {2 * time.Second, 0, 2*hour + 2*time.Second, 0}},
		"a step backwards":     {{0, 0, hour, 0}, {time.Second, 0, time.Second, -hour}},
		"half a second":        {{0, 0, hour, 0}, {time.Second, 0, hour + 1500*time.Millisecond, 500 * time.Millisecond}},
		"a step in a slow one": {{0, 0, hour, 0}, {time.Second, time.Second, hour + 2500*time.Millisecond, 500 * time.Millisecond}},
	} {
		c := newClock()
		must.Equal(t, c.latest(c.base), 0, "an unused clock knows the time")
		for i, call := range calls {
			start := c.base.Add(call.start)
			if got := c.observe(start, start.Add(call.took), call.redis.Microseconds()); (got-call.step).Abs() > 2*time.Millisecond || (got == 0) != (call.step == 0) {
				t.Errorf("%s: call %d: step %s, want %s", name, i, got, call.step)
			}
			// Redis read its clock before the end, so it was not later then.
			if got := c.latest(start.Add(call.took)); got < call.redis.Microseconds() {
				t.Errorf("%s: call %d: latest %d, it was %s", name, i, got, call.redis)
			}
		}
	}
}

// The clock calls nothing a step that the calls can explain.
func TestClockIsNotFooledBySlowCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		micros := func(name string, most int64) time.Duration {
			return time.Duration(rapid.Int64Range(0, most).Draw(t, name)) * time.Microsecond
		}
		at, offset := time.Duration(0), micros("offset", 1e12)
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			at += micros("pause", 1e7)
			there, back := micros("there", 2e6), micros("back", 2e6)
			start := c.base.Add(at)
			must.Be(t, c.observe(start, start.Add(there+back), (at+there+offset).Microseconds()), 0, "step")
			if latest := c.latest(start.Add(there)); latest < (at + there + offset).Microseconds() {
				t.Fatal("Redis is later than it can be")
			}
		}
	})
}

// A script that runs as late as those of late, or a little later, finds a time that is expected; one after a step does not, and while the step
// waits to be told no time is.
func TestClockExpects(t *testing.T) {
	t.Parallel()
	const rtt, there = 100 * time.Millisecond, 40 * time.Millisecond
	c := newClock()
	must.Equal(t, c.expected(c.base), 0, "is expected of a clock that is not known")
	redisAt := func(at time.Duration) int64 { return (time.Hour + at).Microseconds() }
	c.observe(c.base, c.base.Add(rtt), redisAt(there))
	for _, sent := range []time.Duration{time.Second, time.Minute} {
		got := c.expected(c.base.Add(sent))
		if onTime := redisAt(sent + rtt + unexpectedLate); got < onTime {
			t.Errorf("sent after %s: %d is expected, and a script may find %d", sent, got, onTime)
		}
		if afterStep := redisAt(sent + time.Second); got > afterStep {
			t.Errorf("sent after %s: %d is expected, and a step by a second tells %d", sent, got, afterStep)
		}
	}
	sent := 2 * time.Minute
	c.observe(c.base.Add(sent), c.base.Add(sent+rtt), redisAt(sent+time.Hour))
	must.Equal(t, c.expected(c.base.Add(sent+time.Second)), 1, "before the step is told is expected")
	c.takeJump()
	if got, least := c.expected(c.base.Add(sent+time.Second)), redisAt(sent+time.Hour); got < least {
		t.Errorf("after it was told %d is expected, the clock has %d", got, least)
	}
}

func TestClockRemembersRoundTrips(t *testing.T) {
	t.Parallel()
	c := newClock()
	if a, b := c.rtt(); a != 0 || b != 0 {
		t.Errorf("at first %s and %s", a, b)
	}
	for i := range 20 {
		c.observe(c.base, c.base.Add(time.Duration(20-i)*time.Millisecond), 0)
	}
	if a, b := c.rtt(); a != time.Millisecond || b != rttSamples*time.Millisecond {
		t.Errorf("shortest %s, longest %s", a, b)
	}
}

func TestHorizon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		interval, rtt time.Duration
		questions     int
		want          time.Duration
	}{
		{0, 0, 0, 20 * time.Millisecond},
		{time.Millisecond, time.Millisecond, 0, 20 * time.Millisecond},
		{2 * time.Millisecond, 0, 0, 32 * time.Millisecond},
		{2 * time.Millisecond, 0, 1, 40 * time.Millisecond},
		{2 * time.Millisecond, 0, 2, 48 * time.Millisecond},
		{time.Microsecond, 10 * time.Millisecond, 0, 40 * time.Millisecond},
		{time.Hour, 0, 0, 200 * time.Millisecond},
		{31 * 24 * time.Hour, time.Minute, 2, 200 * time.Millisecond},
	} {
		must.Equal(t, horizon(test.interval, test.rtt, test.questions), test.want, "horizon(%s, %s, %d)", test.interval, test.rtt, test.questions)
	}
}
