package scripts_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A batch answers what its questions would be answered one by one, in order,
// and leaves the same behind. What it refuses is told what it would be told after
// all of them: a later question may have spent what an earlier one waits for.
func TestBatchEqualsSingles(t *testing.T) {
	conform(t, func(t *testing.T, base *rig, a algorithm) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, "b")
			var batched, alone []limit
			counts, micros := []int64{}, int64(0)
			for range rapid.IntRange(1, 4).Draw(rt, "keys") {
				l, count, window := a.draw(rt)
				other := l
				l.key, other.key = fmt.Sprint("batched", nextClaim()), fmt.Sprint("alone", nextClaim())
				batched, alone, counts, micros = append(batched, l), append(alone, other), append(counts, count), max(micros, window)
			}
			now := int64(epoch)
			for step := range rapid.IntRange(1, 4).Draw(rt, "steps") {
				now += elapsed(micros, slices.Max(counts)).Draw(rt, "elapsed")
				at := now - rapid.SampledFrom([]int64{0, 0, 1000, 2 * second}).Draw(rt, "jitter")
				var inquiries []inquiry
				for range rapid.IntRange(1, 6).Draw(rt, "questions") {
					of := rapid.IntRange(0, len(batched)-1).Draw(rt, "of")
					inquiries = append(inquiries, inquiry{
						of: of, times: rapid.Int64Range(1, 5).Draw(rt, "times"),
						cost: rapid.OneOf(cost(counts[of]), rapid.Just(counts[of]+1)).Draw(rt, "cost"),
					})
				}
				var want [][]said
				for _, q := range inquiries {
					var answers []said
					for range q.times {
						answers = append(answers, r.allow(alone[q.of], q.cost, at))
					}
					want = append(want, answers)
				}
				for i, q := range inquiries {
					for n, answer := range want[i] {
						if answer.verdict != allowed {
							want[i][n] = r.allow(alone[q.of], q.cost, at)
						}
					}
				}
				got := r.allowAll(at, batched, inquiries...)
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(said{})); diff != "" {
					rt.Fatalf("step %d, %+v: (-alone +batched)\n%s", step, inquiries, diff)
				}
			}
		})
	})
}

// What costs more than there is takes what there is, and never waits.
func TestTakeWhatIsThere(t *testing.T) {
	conform(t, func(t *testing.T, r *rig, a algorithm) {
		l := a.window(10, 10*second)
		l.key = "k"
		now := int64(epoch)
		got := r.allowAll(now, []limit{l}, inquiry{cost: 4, times: 1}, inquiry{cost: 3}, inquiry{cost: 100}, inquiry{cost: 1}, inquiry{cost: 1, times: 1})
		for i, want := range []said{{remaining: 6}, {wait: 3, remaining: 3}, {wait: 3, remaining: 0}, {wait: 0, remaining: 0}, {verdict: refused}} {
			if s := got[i][0]; s.remaining != want.remaining || s.verdict != want.verdict || want.verdict == 0 && s.wait != want.wait {
				t.Errorf("inquiry %d: %+v, want %+v", i, s, want)
			}
		}
	})
}

// What is taken in advance is taken with a question that is allowed only.
func TestTakeIfAllowed(t *testing.T) {
	conform(t, func(t *testing.T, r *rig, a algorithm) {
		l, other := a.window(10, 10*second), a.window(10, 10*second)
		l.key, other.key = "k", "o"
		got := r.allowAll(int64(epoch), []limit{l, other},
			inquiry{cost: 5, times: 1}, inquiry{cost: 7, times: 1}, inquiry{cost: 3, times: -1}, // refused
			inquiry{cost: 2, times: 3}, inquiry{cost: 3, times: -1}, // the last of them is refused
			inquiry{cost: 1, times: 1}, inquiry{of: 1, cost: 11, times: 1}, inquiry{of: 1, cost: 1, times: -1}) // another state's
		for i, taken := range map[int]int64{2: 0, 4: 0, 7: 0} {
			if s := got[i][0]; s.wait != taken {
				t.Errorf("inquiry %d: %+v, want %d taken", i, s, taken)
			}
		}
		got = r.allowAll(int64(epoch), []limit{other}, inquiry{cost: 4, times: 2}, inquiry{cost: 3, times: -1})
		if s := got[1][0]; s.wait != 2 || s.remaining != 0 {
			t.Errorf("after an allowed one: %+v, want 2 taken", s)
		}
	})
}

// A conf that says something else than the caller knows decides nothing, one
// that is missing is told.
func TestAllowKnowsTheConf(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ask := func(rev string) []int64 {
			n := must.Get(lua.Integers(r.run(lua.Allow, r.keys("settings", "state", "keys", "overflow"), rev, "", "token_bucket", 0, 1, 1, "", 1, 1, 2*second, 1)))(r.t)
			return n
		}
		if got := ask("1"); got[0] != 2 || got[1] != 1 {
			t.Errorf("without a conf: %v", got)
		}
		r.run(lua.Configure, r.keys("settings"), 1, 0, "", "", 1, "test", 0, "limits", "[]")
		rev := r.stored("settings", "limits_rev")
		for range 3 {
			if got := ask("1"); len(got) != 1 || got[0] != 1 {
				t.Errorf("with another rev: %v", got)
			}
		}
		if got := ask(rev); got[0] != 0 || got[1] != 1 || got[2] != 0 {
			t.Errorf("with its rev: %v: what is stale must spend nothing", got)
		}
		if got := ask(""); got[0] != 0 || got[1] != 0 {
			t.Errorf("without a rev: %v", got)
		}
	})
}

// A key that cannot be read spoils the batch before anything is spent.
func TestASpoiltKeySpendsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.lpush("spoilt", 1)
		_, err := lua.Allow.Run(r.ctx, r.c, nil, r.keys("settings", "state", "spoilt", "keys", "overflow"),
			"", "", "token_bucket", 0, 1, 1, "", 1, 1, 2*second, 1, 1, 1, 1, 1, 2, 1, 1)
		if err == nil {
			t.Fatal("a list is no state")
		}
		if n, err := r.c.Exists(r.ctx, r.key("state")).Result(); n != 0 || err != nil {
			t.Errorf("the other state was written: %v", err)
		}
	})
}

func TestInstances(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		say := func(id string, want int64) {
			t.Helper()
			n, err := lua.Integers(r.run(lua.Instances, r.keys("instances"), id, 15*second))
			if err != nil || len(n) != 1 || n[0] != want {
				t.Errorf("%s: %v, %v; want %d", id, n, err, want)
			}
		}
		say("a", 1)
		say("a", 1)
		say("b", 2)
		age := func(id string, micros float64) {
			r.ok(r.c.ZIncrBy(r.ctx, r.key("instances"), micros, id).Err())
		}
		age("a", -16*second)
		say("b", 1)
		say("a", 2)
		age("a", -14*second)
		say("b", 2)
		age("a", 3600*second) // the clock stepped back
		say("b", 1)
		if ttl := r.ttl(r.key("instances")); ttl <= 0 || ttl.Seconds() > 15 {
			t.Errorf("TTL %s", ttl)
		}
	})
}
