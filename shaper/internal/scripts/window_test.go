package scripts_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// definition is a rule as it is written in its doc comment, in exact numbers
// and with all of the past kept.
type definition interface {
	// free is how many requests may pass now, rounded down.
	free(now int64) int64
	take(now, cost int64)
}

// bucketOf is the token bucket as a definition.
type bucketOf struct{ *exact }

func (e bucketOf) take(_, cost int64) { e.exact.take(cost) }

func (e bucketOf) free(now int64) int64 {
	e.refill(now)
	return new(big.Int).Quo(e.level.Num(), e.level.Denom()).Int64() / second
}

// spent is what was admitted, in order.
type spent struct {
	l     limit
	past  []passed
	count func(l limit, past []passed, now int64) *big.Rat
}

type passed struct{ at, cost int64 }

func (s *spent) take(now, cost int64) { s.past = append(s.past, passed{now, cost}) }

func (s *spent) free(now int64) int64 {
	left := new(big.Rat).Sub(new(big.Rat).SetInt64(s.l.full), s.count(s.l, s.past, now))
	if left.Sign() < 0 {
		return 0
	}
	return new(big.Int).Quo(left.Num(), left.Denom()).Int64()
}

// inLog is what came less than a window ago.
func inLog(l limit, past []passed, now int64) *big.Rat {
	sum := int64(0)
	for _, p := range past {
		if p.at > now-l.b {
			sum += p.cost
		}
	}
	return new(big.Rat).SetInt64(sum)
}

// inPieces weighs each piece of time by how much of it is in the window that
// ends with the current piece's share of it.
func inPieces(l limit, past []passed, now int64) *big.Rat {
	sum := new(big.Rat)
	for _, p := range past {
		switch age := now/l.b - p.at/l.b; {
		case age < max(l.a, 1):
			sum.Add(sum, new(big.Rat).SetInt64(p.cost))
		case age == l.a:
			sum.Add(sum, new(big.Rat).Mul(big.NewRat(l.b-now%l.b, l.b), new(big.Rat).SetInt64(p.cost)))
		}
	}
	return sum
}

// algorithm is a row of the conformance suite.
type algorithm struct {
	name   string
	window func(count, micros int64) limit // so many in so much time
	define func(l limit) definition
}

// sliding is a counter with so many pieces a window.
func sliding(pieces int64) func(count, micros int64) limit {
	return func(count, micros int64) limit {
		return limit{algorithm: "sliding_window_counter", a: pieces, b: micros / pieces, full: count}
	}
}

var algorithms = []algorithm{
	{
		"token_bucket",
		func(count, micros int64) limit { return per(count, micros, count) },
		func(l limit) definition {
			return bucketOf{&exact{l: l, level: new(big.Rat).SetInt64(l.full), at: epoch}}
		},
	},
	{
		"sliding_window_log",
		func(count, micros int64) limit { return limit{algorithm: "sliding_window_log", b: micros, full: count} },
		func(l limit) definition { return &spent{l: l, count: inLog} },
	},
	{"sliding_window_counter", sliding(1), func(l limit) definition { return &spent{l: l, count: inPieces} }},
	{"sliding_window_counter, precision 10", sliding(10), func(l limit) definition { return &spent{l: l, count: inPieces} }},
	{
		"fixed_window",
		func(count, micros int64) limit { return limit{algorithm: "fixed_window", b: micros, full: count} },
		func(l limit) definition { return &spent{l: l, count: inPieces} },
	},
}

// conform runs a test for each algorithm on each server.
func conform(t *testing.T, test func(t *testing.T, r *rig, a algorithm)) {
	t.Helper()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) { test(t, r, a) })
		})
	}
}

// draw is a limit of an algorithm, and its window and count. Some windows are
// as long and some counts as large as they can be.
func (a algorithm) draw(t *rapid.T) (l limit, count, micros int64) {
	count = rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 1000)).Draw(t, "count")
	micros = 10_000 * rapid.OneOf(rapid.Int64Range(10, 300), rapid.SampledFrom([]int64{6000, 360_000, 8_640_000, 31 * 8_640_000})).Draw(t, "window")
	if !strings.Contains(a.name, "log") && rapid.Bool().Draw(t, "large") {
		count = min(count*1000, micros/second+1000)
	}
	l = a.window(count, micros)
	l.key = fmt.Sprint("l", nextClaim())
	return l, count, micros
}

// elapsed is a step of time that suits the limit.
func elapsed(micros, count int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Range(0, 2*micros/count+1), rapid.Int64Range(0, micros), rapid.Int64Range(0, 3*micros))
}

func cost(count int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, count), rapid.Just((count+1)/2))
}

// remaining asks without spending: what costs more than ever fits.
func (r *rig) remaining(l limit, count, now int64) int64 { return r.allow(l, count+1, now).remaining }

// Every algorithm agrees with its definition in every decision and in what it
// says is left: it never admits more, and refuses nothing that it allows.
func TestDefinitions(t *testing.T) {
	conform(t, func(t *testing.T, base *rig, a algorithm) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			l, count, micros := a.draw(rt)
			rule, now := a.define(l), int64(epoch)
			for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
				now += elapsed(micros, count).Draw(rt, "elapsed")
				n := cost(count).Draw(rt, "cost")
				free, want := rule.free(now), int64(refused)
				if n <= free {
					want = allowed
					rule.take(now, n)
				}
				got := r.allow(l, n, now)
				if got.verdict != want || got.remaining != rule.free(now) {
					rt.Fatalf("step %d, cost %d: %+v, of %d there are %d free and then %d", i, n, got, count, free, rule.free(now))
				}
			}
			if got := r.allow(l, count+1, now); got.verdict != impossible || got.wait != 0 || got.remaining != rule.free(now) {
				rt.Fatalf("above the limit: %+v", got)
			}
		})
	})
}

// Who waits exactly as long as was said is admitted, a microsecond less is not,
// and asking spends nothing. After reset it is as if it had never been used.
func TestEveryRetryAfterIsTrue(t *testing.T) {
	conform(t, func(t *testing.T, base *rig, a algorithm) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			l, count, micros := a.draw(rt)
			now := int64(epoch)
			for range rapid.IntRange(1, 15).Draw(rt, "rounds") {
				now += elapsed(micros, count).Draw(rt, "elapsed")
				at := now - rapid.SampledFrom([]int64{0, 0, 1, second}).Draw(rt, "jitter")
				n := cost(count).Draw(rt, "cost")
				got := r.allow(l, n, at)
				if got.verdict == allowed {
					continue
				}
				if got.wait < 1 {
					rt.Fatalf("refused, and may come back in %d µs", got.wait)
				}
				if early := r.allow(l, n, at+got.wait-1); early.verdict != refused || early.wait != 1 {
					rt.Fatalf("a microsecond early: %+v, was %+v", early, got)
				}
				now = max(now, at+got.wait)
				if again := r.allow(l, n, at+got.wait); again.verdict != allowed {
					rt.Fatalf("in time: %+v, was %+v", again, got)
				}
			}
			last := r.allow(l, 1, now)
			if last.reset > 0 {
				if got := r.remaining(l, count, now+last.reset-1); got >= count {
					rt.Fatalf("%d of %d are left before reset: %+v", got, count, last)
				}
			}
			if got := r.allow(l, count, now+last.reset); got.verdict != allowed || got.remaining != 0 {
				rt.Fatalf("after reset: %+v, was %+v", got, last)
			}
		})
	})
}

// A clock that steps back mints nothing, by whatever it steps, and nobody who
// was admitted in a future that did not come is blocked for longer than the
// rule blocks who spent all just now.
func TestClockSteps(t *testing.T) {
	conform(t, func(t *testing.T, base *rig, a algorithm) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			l, count, micros := a.draw(rt)
			now := int64(epoch)
			for range rapid.IntRange(1, 10).Draw(rt, "rounds") {
				r.allow(l, cost(count).Draw(rt, "cost"), now)
				before := r.remaining(l, count, now)
				back := rapid.OneOf(rapid.Int64Range(1, second), rapid.Int64Range(second+1, 2*micros+2*second)).Draw(rt, "back")
				if after := r.remaining(l, count, now-back); after > before {
					rt.Fatalf("%d µs back: %d are left, before it %d", back, after, before)
				}
				if back > second { // or it is waited out
					now -= back
				}
				now += elapsed(micros, count).Draw(rt, "forward")
			}
			// Far ahead, all is spent, and back again.
			ahead := now + rapid.Int64Range(second+1, 400*24*3600*second).Draw(rt, "ahead")
			r.allow(l, count, ahead)
			for r.allow(l, 1, ahead).verdict == allowed {
				r.allow(l, max(r.remaining(l, count, ahead), 1), ahead)
			}
			got := r.allow(l, 1, now)
			piece := micros / max(l.a, 1) // a counter begins to forget after its window
			if a.name == "token_bucket" {
				piece = 0
			}
			// What is up to a second ahead is waited out.
			if got.verdict != refused || got.wait > micros+piece+second {
				rt.Fatalf("back from the future: %+v, the window is %d", got, micros)
			}
			if early := r.allow(l, 1, now+got.wait-1); early.verdict != refused {
				rt.Fatalf("a microsecond early: %+v", early)
			}
			if again := r.allow(l, 1, now+got.wait); again.verdict != allowed {
				rt.Fatalf("in time: %+v", again)
			}
		})
	})
}

// The state is worth nothing a second after the limit is as if never used, and
// is replaced where it is garbage, of another algorithm or of another window.
func TestEveryStateExpires(t *testing.T) {
	conform(t, func(t *testing.T, r *rig, a algorithm) {
		l := a.window(5, 60*second)
		l.key = "l"
		key := r.key("limit:l")
		for range 2 {
			got := r.allow(l, 2, r.now())
			ttl := r.ttl(key)
			if over := ttl.Milliseconds() - got.reset/1000; got.verdict != allowed || over < 900 || over > 1002 { // both are rounded
				t.Errorf("TTL %s, %+v", ttl, got)
			}
		}
		for _, text := range []string{"", "nonsense", "1:2", "99999999:0:1", "-1:0:0", "w:1", "w1:2:", "w1:1::"} {
			r.ok(r.c.Set(r.ctx, key, text, 0).Err())
			if got := r.allow(l, 5, r.now()); got.verdict != allowed {
				t.Errorf("state %q: %+v", text, got)
			}
		}
		for _, other := range algorithms {
			r.ok(r.c.Del(r.ctx, key).Err())
			before := other.window(5, 60*second)
			before.key = "l"
			r.allow(before, 5, r.now())
			if before.algorithm == l.algorithm || strings.HasPrefix(a.name, "fixed") || strings.HasPrefix(a.name, "sliding_window_counter") {
				continue // they count what the other has counted, or nothing
			}
			if got := r.allow(l, 5, r.now()); got.verdict != allowed {
				t.Errorf("after %s: %+v", other.name, got)
			}
		}
		// A lowered limit takes effect at once.
		r.ok(r.c.Del(r.ctx, key).Err())
		now := int64(epoch)
		r.allow(l, 4, now)
		low := a.window(3, 60*second)
		low.key = "l"
		if got := r.allow(low, 4, now); got.verdict != impossible {
			t.Errorf("lowered: %+v", got)
		}
		if got := r.allow(low, 1, now); (got.verdict != refused || got.remaining != 0 || got.wait < 1) && a.name != "token_bucket" {
			t.Errorf("lowered: %+v", got)
		}
	})
}

// Windows of other lengths, and other pieces, forget nothing of what counts.
func TestCounterOfAnotherWindow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		for _, to := range []func(count, micros int64) limit{sliding(10), sliding(4), algorithms[4].window} {
			before := sliding(1)(10, 60*second)
			before.key = fmt.Sprint("l", nextClaim())
			r.allow(before, 7, epoch)
			after := to(10, 3600*second)
			after.key = before.key
			if got := r.allow(after, 1, epoch+1); got.verdict != allowed || got.remaining != 2 {
				t.Errorf("%+v: %+v", after, got)
			}
		}
	})
}

// Numbers as large as they can be are counted to the last digit.
func TestLargeCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			const month = 31 * 24 * 3600 * second
			l := sliding(rapid.SampledFrom([]int64{1, 2, 100}).Draw(rt, "pieces"))(2_147_483_647, month)
			l.key = fmt.Sprint("l", nextClaim())
			start := int64(epoch) / l.b * l.b
			counts := make([]string, l.a+1)
			rule := &spent{l: l, count: inPieces}
			for i := range counts {
				n := rapid.Int64Range(0, l.full/l.a).Draw(rt, "n")
				counts[i] = fmt.Sprint(n)
				rule.take(start-int64(i)*l.b, n)
			}
			now := start + rapid.Int64Range(0, l.b-1).Draw(rt, "now")
			r.ok(r.c.Set(r.ctx, r.key("limit:"+l.key), fmt.Sprintf("w%d:%d:%s", l.b, start, strings.Join(counts, ":")), 0).Err())
			n := rapid.Int64Range(1, 1_000_000).Draw(rt, "cost")
			want := rule.free(now)
			got := r.allow(l, n, now)
			if want >= n {
				want -= n
			}
			must.Be(rt, got.remaining, want, "are left")
			if got.verdict == refused {
				if early := r.allow(l, n, now+got.wait-1); early.verdict != refused {
					rt.Fatalf("early: %+v, was %+v", early, got)
				}
				if again := r.allow(l, n, now+got.wait); again.verdict != allowed {
					rt.Fatalf("in time: %+v, was %+v", again, got)
				}
			}
		})
	})
}
