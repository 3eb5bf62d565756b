package scripts_test

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// verdicts of limits.lua.
const (
	allowed    = 0
	refused    = 1
	impossible = 2
)

// said is the answer of allow.lua.
type said struct{ verdict, remaining, wait, reset int64 }

func (r *rig) allow(l limit, cost, now int64) said {
	r.t.Helper()
	return r.inquire(true, now, []limit{l}, inquiry{cost: cost, times: 1})[0][0]
}

// inquiry is one question of a batch, of the limit with that index.
type inquiry struct {
	of          int
	cost, times int64
}

// allowAll asks allow.lua about limits that share a batch. Each inquiry has as
// many answers as times; where times is 0 or -1, one, whose wait is what was taken.
func (r *rig) allowAll(now any, limits []limit, inquiries ...inquiry) [][]said {
	r.t.Helper()
	return r.inquire(false, now, limits, inquiries...)
}

// inquire is allowAll; alone, the only inquiry is sent as its cost.
func (r *rig) inquire(alone bool, now any, limits []limit, inquiries ...inquiry) [][]said {
	r.t.Helper()
	rule := limits[0].args()[0].(string)
	keys, args := []string{r.key("limits")}, []any{"", now, rule, limits[0].max, max(limits[0].life, 1), len(limits), limits[0].namer}
	for _, l := range limits {
		keys = append(keys, r.key("limit:"+l.key))
		args = append(args, l.a, l.b, l.full)
	}
	for range limits {
		keys = append(keys, r.keys("limit_keys", "limit:overflow")...)
	}
	if alone {
		args = append(args, inquiries[0].cost)
	} else {
		for i := range limits {
			args = append(args, i+1)
		}
		for _, q := range inquiries {
			args = append(args, q.of+1, q.cost, q.times)
		}
	}
	in := r.reader(lua.Allow, keys, args...)
	r.shared = nil
	answers := make([][]said, len(inquiries))
	for i, q := range inquiries {
		if q.times <= 0 {
			taken := in.Int()
			answers[i] = []said{{remaining: in.Int(), reset: in.Int(), wait: taken}}
			continue
		}
		passed, remaining, reset, slack := in.Int(), in.Int(), in.Int(), in.Int()
		for n := range passed {
			after, at := (passed-n-1)*q.cost, reset
			if l := limits[q.of]; rule == "token_bucket" {
				at = lua.EarlierReset(reset, slack, after*second, l.a, l.b)
			}
			answers[i] = append(answers[i], said{remaining: remaining + after, reset: at})
		}
		if passed == q.times {
			continue
		}
		rest := said{verdict: in.Int(), wait: in.Int(), remaining: in.Int(), reset: in.Int()}
		for range q.times - passed {
			answers[i] = append(answers[i], rest)
		}
	}
	for in.Left() > 0 && in.Err() == nil {
		r.shared = append(r.shared, in.Int())
	}
	if in.Err() != nil || in.Left() != 0 {
		r.t.Fatalf("allow: %v, %d items too many", in.Err(), in.Left())
	}
	return answers
}

// per is count tokens in that many microseconds, as package admission makes it
// of a rate.
func per(count, micros, burst int64) limit {
	a, b := count*second, micros
	for x, y := a, b; ; x, y = y, x%y {
		if y == 0 {
			return limit{a: a / x, b: b / x, full: burst * second, key: fmt.Sprint(count, "-", micros, "-", burst)}
		}
	}
}

func TestTokenBucket(t *testing.T) {
	t.Parallel()
	type attempt struct {
		after, cost                     int64 // microseconds since the attempt before
		verdict, remaining, wait, reset int64
	}
	for name, table := range map[string]struct {
		limit    limit
		attempts []attempt
	}{
		"bursts, then the rate": {per(10, second, 3), []attempt{
			{0, 1, allowed, 2, 0, 100_000},
			{0, 2, allowed, 0, 0, 300_000},
			{0, 1, refused, 0, 100_000, 300_000},
			{99_999, 1, refused, 0, 1, 200_001}, // a refusal spends nothing
			{1, 1, allowed, 0, 0, 300_000},
			{50_000, 1, refused, 0, 50_000, 250_000},
			{250_000, 3, allowed, 0, 0, 300_000},
		}},
		"a cost above the burst never passes": {per(10, second, 3), []attempt{
			{0, 4, impossible, 3, 0, 0},
			{0, 3, allowed, 0, 0, 300_000},
			{0, 4, impossible, 0, 0, 300_000},
		}},
		"a step back mints nothing": {per(1, second, 2), []attempt{
			{0, 2, allowed, 0, 0, 2 * second},
			{-3600 * second, 1, refused, 0, second, 2 * second},
			{second, 1, allowed, 0, 0, 2 * second},
			{0, 1, refused, 0, second, 2 * second},
		}},
		"seven a minute": {per(7, 60*second, 1), []attempt{
			{0, 1, allowed, 0, 0, 8_571_429},
			{8_571_428, 1, refused, 0, 1, 1},
			{1, 1, allowed, 0, 0, 8_571_429}, // what is above a whole bucket is lost
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				now := int64(epoch)
				for i, a := range table.attempts {
					now += a.after
					want := said{a.verdict, a.remaining, a.wait, a.reset}
					must.Equal(t, r.allow(table.limit, a.cost, now), want, "attempt %d", i)
				}
			})
		})
	}
}

// exact is the rule in rational numbers.
type exact struct {
	l     limit
	level *big.Rat // micro-tokens
	at    int64
}

func (e *exact) refill(now int64) {
	e.level.Add(e.level, new(big.Rat).Mul(big.NewRat(e.l.a, e.l.b), new(big.Rat).SetInt64(now-e.at)))
	e.at = now
	if full := new(big.Rat).SetInt64(e.l.full); e.level.Cmp(full) > 0 {
		e.level = full
	}
}

func (e *exact) take(cost int64) bool {
	need := new(big.Rat).SetInt64(cost * second)
	if e.level.Cmp(need) < 0 {
		return false
	}
	e.level.Sub(e.level, need)
	return true
}

func drawLimit(t *rapid.T, key string) limit {
	l := per(rapid.Int64Range(1, 1000).Draw(t, "count"),
		1000*rapid.OneOf(rapid.Int64Range(1, 1000), rapid.SampledFrom([]int64{60_000, 3_600_000, 86_400_000, 777_777})).Draw(t, "millis"),
		rapid.Int64Range(1, 50).Draw(t, "burst"))
	l.key = key
	return l
}

// Over any number of steps of any size the script agrees with exact
// arithmetic: nothing is minted and nothing is lost to rounding.
func TestTokenBucketIsExact(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			l := drawLimit(rt, fmt.Sprint(nextClaim()))
			model := exact{l: l, level: new(big.Rat).SetInt64(l.full), at: epoch}
			step := max(l.b*second/l.a, 2) // about a token
			for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
				now := model.at + rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, step), rapid.Int64Range(0, 20*step)).Draw(rt, "elapsed")
				cost := rapid.Int64Range(1, l.full/second).Draw(rt, "cost")
				model.refill(now)
				got, want := r.allow(l, cost, now), model.take(cost)
				if (got.verdict == allowed) != want {
					rt.Fatalf("step %d: %+v, exactly %s micro-tokens are there", i, got, model.level.FloatString(3))
				}
				whole := new(big.Int).Quo(model.level.Num(), model.level.Denom())
				must.Be(rt, got.remaining, whole.Int64()/second, "step %d: remaining of %s micro-tokens", i, whole)
			}
		})
	})
}

// Who waits exactly as long as was said is admitted; a microsecond less is not.
func TestRetryAfterIsTrue(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			l := drawLimit(rt, fmt.Sprint(nextClaim()))
			now := int64(epoch)
			for range rapid.IntRange(1, 15).Draw(rt, "rounds") {
				now += rapid.Int64Range(0, 2*l.b*second/l.a+1).Draw(rt, "elapsed")
				cost := rapid.Int64Range(1, l.full/second).Draw(rt, "cost")
				got := r.allow(l, cost, now)
				if got.verdict == allowed {
					continue
				}
				if got.wait < 1 {
					rt.Fatalf("refused, and may come back in %d µs", got.wait)
				}
				if early := r.allow(l, cost, now+got.wait-1); early.verdict != refused || early.wait != 1 {
					rt.Fatalf("a microsecond early: %+v", early)
				}
				now += got.wait
				if again := r.allow(l, cost, now); again.verdict != allowed {
					rt.Fatalf("in time: %+v after %d µs", again, got.wait)
				}
			}
			// After reset it is as if it had never been used.
			last := r.allow(l, 1, now)
			if got := r.allow(l, l.full/second, now+last.reset); got.verdict != allowed {
				rt.Fatalf("after reset: %+v", got)
			}
		})
	})
}

// A clock that jitters, as one that is being corrected does, mints nothing
// either: what came before the step back does not come again.
func TestJitterOfTheClockMintsNothing(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const burst = 50
		rounds := atLength(100, 5)
		l := per(100, second, burst)
		passed, now := int64(0), int64(epoch)
		for i := range rounds {
			for _, at := range []int64{now, now - 500_000} {
				for range burst / 2 {
					if r.allow(l, 1, at).verdict == allowed {
						passed++
					}
				}
			}
			now = epoch + (i+1)*1000
		}
		if most := burst + rounds*1000*100/second; passed > most {
			t.Errorf("%d passed in %d ms, want at most %d", passed, rounds, most)
		}
		// It goes on when the clock has caught up, and says when that is.
		got := r.allow(l, 1, now-500_000)
		if got.verdict == allowed || r.allow(l, 1, now-500_000+got.wait).verdict != allowed {
			t.Errorf("half a second back: %+v, and that was not true", got)
		}
	})
}

// Small steps for a long time: a thousand minutes of 7 a minute are 7,000.
func TestManySmallStepsDoNotDrift(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		l, passed := per(7, 60*second, 1), int64(0)
		const step = 1_234_567
		steps := atLength(2000, 5)
		for i := range steps {
			if r.allow(l, 1, epoch+i*step).verdict == allowed {
				passed++
			}
		}
		// A step is shorter than an interval, and the bucket loses what comes
		// while it is full: never, for it is emptied within a step.
		model := exact{l: l, level: new(big.Rat).SetInt64(l.full), at: epoch}
		want := int64(0)
		for i := range steps {
			model.refill(epoch + i*step)
			if model.take(1) {
				want++
			}
		}
		if passed != want || passed > 1+steps*step*7/(60*second) {
			t.Errorf("%d passed, exactly %d should", passed, want)
		}
	})
}

// The state is worth nothing a second after the bucket is full again.
func TestLimitStateExpires(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		l := per(1, 60*second, 5)
		r.allow(l, 2, r.now())
		if ttl := r.ttl(r.key("limit:" + l.key)); ttl.Milliseconds() > 121_000 || ttl.Milliseconds() < 120_000 {
			t.Errorf("TTL %s", ttl)
		}
		// What is not ours, or from before a change of the limit, counts as full.
		for _, state := range []string{"", "nonsense", "1:2", "99999999:0:1", "-1:0:0"} {
			r.ok(r.c.Set(r.ctx, r.key("limit:"+l.key), state, 0).Err())
			if got := r.allow(l, 5, r.now()); got.verdict != allowed {
				t.Errorf("state %q: %+v", state, got)
			}
		}
	})
}
