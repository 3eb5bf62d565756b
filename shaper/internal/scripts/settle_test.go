package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

func TestSettle(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b", "c", "d", "e")
		c := r.claim(ask{})
		got := r.settle(
			outcome{lease: c.jobs[0], result: done, last: `{"status":200}`},
			outcome{lease: c.jobs[1], result: retry, delay: 5 * second, last: `{"status":500}`},
			outcome{lease: c.jobs[2], result: dead, last: `{"status":400}`},
			outcome{lease: c.jobs[3], result: returned},
		)
		must.Be(t, fmt.Sprint(got), "[1 1 1 1]", "settled %v", got)
		r.wantStates(map[string]int64{"a": isDone, "b": isRetrying, "c": isDead, "d": isQueued, "e": isInFlight})
		if b := r.job("b"); b.instant < c.now+5*second || b.instant > r.now()+5*second || b.meta != "4 1 1 0 0 "+c.jobs[1].claim+` {"status":500}` {
			t.Errorf("b: %+v", b)
		}
		if d := r.job("d"); d.position != 0 || d.meta != "1 1 0 0 0 "+c.jobs[3].claim+" " {
			t.Errorf("d: %+v", d)
		}
		if b := r.inspect(); b.unfinished != 3 || b.waiting != 1 || b.later != 1 || b.inFlight != 1 || b.dead != 1 || b.remembered != 1 {
			t.Errorf("bucket: %+v", b)
		}
		// The second try is number 2, and a return counted none.
		r.pass(5*second + 1)
		again := r.claim(ask{})
		if again.ids() != "b d" || again.jobs[0].number != 2 || again.jobs[0].attempts != 1 || again.jobs[1].number != 1 || again.jobs[1].attempts != 0 {
			t.Errorf("claimed %+v", again.jobs)
		}
	})
}

// An outcome counts once, and only from whoever holds the lease.
func TestStaleOutcomesChangeNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b")
		c := r.claim(ask{claim: "c1"})
		held := c.jobs[0]
		wrongEpoch, wrongClaim, unknown := held, held, held
		wrongEpoch.epoch++
		wrongClaim.claim = "c2"
		unknown.id = "x"
		before := r.inspect()
		for _, result := range []int{done, retry, dead, returned} {
			got := r.settle(outcome{lease: wrongEpoch, result: result}, outcome{lease: wrongClaim, result: result}, outcome{lease: unknown, result: result})
			must.Equal(t, fmt.Sprint(got), "[0 0 0]", "result %d: %v", result, got)
		}
		after := r.inspect()
		if after.now = before.now; after != before {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
		// Twice in one call, and in a second call.
		for round, want := range []string{"[1 0]", "[0 0]"} {
			if got := r.settle(outcome{lease: held, result: retry, delay: second}, outcome{lease: held, result: done}); fmt.Sprint(got) != want {
				t.Errorf("round %d: %v", round, got)
			}
		}
		r.wantStates(map[string]int64{"a": isRetrying})
		// The lease was taken back and is somebody else's now.
		r.end("b")
		r.sweep(sweep{})
		must.Equal(t, r.settle(outcome{lease: c.jobs[1], result: done})[0], 0, "an outcome came after the lease was taken back, and counted")
		next := r.claim(ask{claim: "c3"})
		if got := r.settle(outcome{lease: c.jobs[1], result: done}, outcome{lease: next.jobs[0], result: done}); fmt.Sprint(got) != "[0 1]" {
			t.Errorf("old and new holder: %v", got)
		}
	})
}

func TestDedupeWindow(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{dedupe: 600 * second})
		mine, made := entry{id: "mine", content: "x"}, entry{id: "made", content: "x", made: true}
		r.enqueue(nil, mine, made)
		for _, job := range r.claim(ask{}).jobs {
			r.settle(outcome{lease: job, result: done})
		}
		codes := func(want string) {
			t.Helper()
			other := mine
			other.content = "y"
			var got []int64
			for _, a := range r.enqueue(nil, mine, other, made) {
				got = append(got, a.code, a.position)
			}
			must.Equal(t, fmt.Sprint(got), want, "codes and states %v", got)
		}
		codes("[3 6 4 0 3 6]")
		r.pass(59 * second)
		codes("[3 6 4 0 3 6]")
		r.pass(1*second + 1) // an id that the client made is kept for a minute
		codes("[3 6 4 0 1 0]")
		r.pass(539 * second)
		if b := r.inspect(); b.waiting != 1 || b.remembered != 2 {
			t.Errorf("bucket %+v", b)
		}
		r.pass(second)
		codes("[1 1 4 0 3 1]")
		if got := r.sweep(sweep{none: true}); got.missing != 0 || r.inspect().remembered != 0 {
			t.Errorf("swept %+v, %d are remembered", got, r.inspect().remembered)
		}
	})
}

func TestDedupeMax(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{dedupeMax: 3, rateCount: 100_000})
		r.put(numbered(5)...)
		for _, job := range r.claim(ask{}).jobs {
			r.settle(outcome{lease: job, result: done})
			r.pass(10)
		}
		if b := r.inspect(); b.remembered != 3 || b.forgotten != 2 {
			t.Errorf("remembered %d, forgotten %d", b.remembered, b.forgotten)
		}
		r.wantStates(map[string]int64{"j0": 0, "j1": 0, "j2": isDone, "j4": isDone})
		r.configure(settings{dedupe: -1, revision: 1, rateCount: 100_000})
		r.put("j0")
		job := r.claim(ask{}).jobs[0]
		r.settle(outcome{lease: job, result: done})
		r.wantStates(map[string]int64{"j0": 0, "j4": isDone})
	})
}

// Jobs that are given back go to the head, in the order they had.
func TestReturnedJobsKeepTheirOrder(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put(numbered(6)...)
		c := r.claim(ask{want: 4})
		var back []outcome
		for _, job := range c.jobs {
			back = append(back, outcome{lease: job, result: returned})
		}
		r.settle(back...)
		must.Equal(t, r.claim(ask{}).ids(), "j0 j1 j2 j3 j4 j5", "claimed")
	})
}

// What came as scheduled counts against that bound until it has ended, however
// it ends, and the count comes back to 0.
func TestScheduledCount(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{scheduled: 7, rateCount: 10_000})
		ids := []string{"done", "retry", "dead", "returned", "poison", "cancelled", "lost"}
		r.putAt("+1000", ids...)
		if a := r.enqueue(nil, entry{id: "more", due: "+5000"}); a[0].code != 8 || a[0].wait < 1 {
			t.Errorf("beyond the bound: %+v", a)
		}
		if b := r.inspect(); b.scheduled != 7 || b.unfinished != 0 {
			t.Errorf("bucket %+v", b)
		}
		r.cancel("cancelled", "")
		r.pass(1001)
		results := map[string]int{"done": done, "retry": retry, "dead": dead, "returned": returned}
		for _, job := range r.claim(ask{}).jobs {
			if result := results[job.id]; result != 0 {
				r.settle(outcome{lease: job, result: result})
			}
		}
		for range 3 {
			r.end("poison")
			r.sweep(sweep{})
			for _, job := range r.claim(ask{}).jobs {
				if job.id != "poison" {
					r.settle(outcome{lease: job, result: done})
				}
			}
		}
		r.wantStates(map[string]int64{"poison": isDead, "dead": isDead, "lost": isInFlight})
		if b := r.inspect(); b.scheduled != 1 || b.unfinished != 0 || b.dead != 2 {
			t.Errorf("bucket %+v", b)
		}
		r.end("lost")
		r.sweep(sweep{})
		r.cancel("lost", "")
		if got := r.redrive("dead"); got[0] != 1 {
			t.Errorf("redrive: %v", got)
		}
		if b := r.inspect(); b.scheduled != 0 || b.unfinished != 1 {
			t.Errorf("a dead letter that was scheduled is redriven as an ordinary one: %+v", b)
		}
		r.cancel("poison", "5")
		r.cancel("dead", "")
		if b := r.inspect(); b.scheduled != 0 || b.unfinished != 0 || b.dead != 0 {
			t.Errorf("bucket %+v", b)
		}
	})
}

func TestExtend(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("a", "b", "c")
		jobs := r.claim(ask{lease: second}).jobs
		stale := jobs[1]
		stale.epoch++
		r.settle(outcome{lease: jobs[2], result: done})
		for range 2 {
			if got := r.extend(9*second, jobs[0], stale, jobs[2], lease{id: "x", epoch: 1, claim: "c"}); fmt.Sprint(got) != "[1 0 0 0]" {
				t.Errorf("extended %v", got)
			}
		}
		r.pass(2 * second)
		if s := r.sweep(sweep{}); s.takenBack != 1 {
			t.Errorf("swept %+v", s)
		}
		r.wantStates(map[string]int64{"a": isInFlight, "b": isQueued, "c": isDone})
		if got := r.extend(9*second, jobs...); fmt.Sprint(got) != "[1 0 0]" {
			t.Errorf("extended %v after the sweep", got)
		}
	})
}

// What a settled job leaves behind is its id, for its dedupe window.
func TestNothingIsLeftBehind(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{dedupe: -1, rateCount: 50_000})
		r.put(numbered(500)...)
		for {
			c := r.claim(ask{want: 200})
			if len(c.jobs) == 0 {
				break
			}
			var all []outcome
			for _, job := range c.jobs {
				all = append(all, outcome{lease: job, result: done})
			}
			r.settle(all...)
			r.pass(20_000)
		}
		r.pass(120 * second)
		r.compare() // drops the answers of dispatchers that claim no more
		left := must.Get(r.c.Keys(r.ctx, "*").Result())(r.t)
		for _, key := range left {
			if key != r.key("settings") && key != r.key("pace") && key != r.key("count") {
				t.Errorf("%s is left", key)
			}
		}
	})
}
