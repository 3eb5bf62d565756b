package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// doom puts the jobs of numbered on their last chance where they wait.
func (r *rig) doom(numbers []int) {
	r.t.Helper()
	pipe := r.c.Pipeline()
	for _, n := range numbers {
		pipe.HSet(r.ctx, r.key("meta"), fmt.Sprint("j", n), fmt.Sprintf("%d 2 0 2 %d old ", isQueued, lastChance))
	}
	must.Get(pipe.Exec(r.ctx))(r.t)
}

func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// crash claims and loses all that the dispatcher gets, as when it dies.
func (r *rig) crash(a ask) (claimed, swept) {
	r.t.Helper()
	c := r.claim(a)
	r.end(strings.Fields(c.ids())...)
	return c, r.sweep(sweep{})
}

// A poison job among others: the third crash finds it alone, and its neighbours
// of the first two crashes all get through, in their order.
func TestLastChanceIsAlone(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put(numbered(6)...) // j2 is the poison
		for range lastChance {
			if c, s := r.crash(ask{}); c.ids() != "j0 j1 j2 j3 j4 j5" || c.lone != 0 || s.poison != 0 {
				t.Fatalf("claimed %q, lone %d, swept %+v", c.ids(), c.lone, s)
			}
		}
		r.put("fresh1", "fresh2", "fresh3")
		c := r.claim(ask{want: 3})
		if c.ids() != "j0 fresh1 fresh2" || c.lone != 1 {
			t.Errorf("claimed %q, lone %d", c.ids(), c.lone)
		}
		r.wantStates(map[string]int64{"j1": isRetrying, "j5": isRetrying, "fresh3": isQueued})
		// The slots are as if no job had been parked.
		must.Equal(t, c.jobs[2].slot-c.jobs[0].slot, 200, "three slots take µs")
		if more := r.claim(ask{holdsLone: true}); more.ids() != "fresh3" || more.next < more.now+200_000 || more.lone != 0 {
			t.Errorf("claimed %q, lone %d, next in %d µs", more.ids(), more.lone, more.next-more.now)
		}
		var through []string
		poison := int64(0)
		for poison == 0 && len(through) < 20 {
			for _, job := range c.jobs {
				if job.id != "j2" {
					through = append(through, job.id)
					r.settle(outcome{lease: job, result: done})
				}
			}
			r.pass(300_000)
			c = r.claim(ask{want: 3})
			if c.ids() == "j2" {
				r.end("j2")
				poison = r.sweep(sweep{}).poison
				r.pass(300_000)
				c = r.claim(ask{want: 3})
			}
		}
		for len(c.jobs) > 0 && len(through) < 20 {
			through = append(through, c.jobs[0].id)
			r.settle(outcome{lease: c.jobs[0], result: done})
			r.pass(300_000)
			c = r.claim(ask{want: 3})
		}
		must.Equal(t, fmt.Sprint(through), "[j0 fresh1 fresh2 j1 j3 j4 j5]", "got through")
		if b := r.inspect(); b.dead != 1 || b.later != 0 || b.waiting != 0 {
			t.Errorf("bucket %+v", b)
		}
	})
}

// The answer to a claim is the same when it is asked again, and one that was
// given back goes to nobody who may not have it.
func TestLastChanceReplay(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put(numbered(4)...)
		r.doom([]int{1, 2})
		c := r.claim(ask{claim: "c"})
		if c.ids() != "j0 j1 j3" || c.lone != 2 {
			t.Errorf("claimed %q, lone %d", c.ids(), c.lone)
		}
		if again := r.claim(ask{claim: "c", holdsLone: true}); fmt.Sprint(again.jobs) != fmt.Sprint(c.jobs) || again.lone != 2 {
			t.Errorf("again: %+v", again)
		}
		r.settle(outcome{lease: c.jobs[0], result: done})
		if again := r.claim(ask{claim: "c"}); again.ids() != "j1 j3" || again.lone != 1 {
			t.Errorf("again without the first: %q, lone %d", again.ids(), again.lone)
		}
		r.settle(outcome{lease: c.jobs[1], result: returned})
		r.pass(1000)
		if c := r.claim(ask{holdsLone: true}); len(c.jobs) != 0 || c.lone != 0 {
			t.Errorf("claimed %q, lone %d", c.ids(), c.lone)
		}
		r.pass(300_000)
		if c := r.claim(ask{}); c.ids() != "j2" || c.lone != 1 {
			t.Errorf("claimed %q, lone %d", c.ids(), c.lone)
		}
		r.cancel("j1", "") // as any that waits
		r.pass(300_000)
		if c := r.claim(ask{}); len(c.jobs) != 0 || c.next != 0 {
			t.Errorf("claimed %q, next %d", c.ids(), c.next)
		}
	})
}

// Many of them: a claim passes a bounded number, none is passed in the list
// twice, and others do not wait behind them for long.
func TestManyLastChances(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const doomed = 1200
		r.configure(settings{rateCount: 10_000, capacity: 2000})
		r.put(numbered(doomed)...)
		r.put("other1", "other2")
		r.doom(upTo(doomed))
		got := ""
		claims := 0
		for ; got != "other1 other2" && claims < 10; claims++ {
			r.pass(1000)
			c := r.claim(ask{holdsLone: true})
			if got = c.ids(); got == "" && c.next != c.now {
				t.Errorf("claim %d: next in %d µs", claims, c.next-c.now)
			}
		}
		must.Equal(t, claims, 3, "the others came with claim")
		if b := r.inspect(); b.later != doomed || b.waiting != 0 {
			t.Errorf("bucket %+v", b)
		}
		// Now they are due, and retries wait behind them.
		r.pass(300_000)
		r.put("other3")
		r.pass(1000)
		r.putAt("+1", "other4")
		r.pass(2)
		must.Equal(t, r.claim(ask{holdsLone: true, want: 4}).ids(), "other3", "claimed: the list gets the slots")
		if c := r.claim(ask{holdsLone: true, want: 4}); len(c.jobs) != 0 {
			t.Errorf("claimed %q", c.ids())
		}
		must.Equal(t, r.claim(ask{holdsLone: true, want: 4}).ids(), "other4", "claimed: no more than three claims to pass them")
	})
}

// They go in the order in which they wait.
func TestLastChancesInOrder(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000})
		r.put(numbered(60)...)
		r.doom(upTo(60))
		var order []string
		for round := range 20 {
			if round%3 == 0 { // another process, which has no use for them
				r.claim(ask{dispatcher: "other", holdsLone: true})
				r.pass(301_000)
			}
			c := r.claim(ask{want: 4})
			if len(c.jobs) != 1 || c.lone != 1 {
				t.Fatalf("claimed %q, lone %d", c.ids(), c.lone)
			}
			order = append(order, c.ids())
			r.settle(outcome{lease: c.jobs[0], result: done})
			r.pass(301_000)
		}
		if !slices.Equal(order, numbered(20)) {
			t.Errorf("they went in the order %v", order)
		}
	})
}

// To pass them costs no body: a hundred of 256 KiB would take Redis long.
func TestPassingLastChancesReadsNoBodies(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{rateCount: 10_000, capacity: 2000})
	r.put(numbered(100)...)
	r.put("other")
	r.doom(upTo(100))
	for _, id := range numbered(100) {
		r.hdel("body", id) // a body that is read would be missed
	}
	must.Equal(t, r.claim(ask{holdsLone: true}).ids(), "other", "claimed")
	must.Equal(t, r.inspect().later, 100, "parked without a look at their bodies")
	r.pass(300_000)
	if c := r.claim(ask{}); len(c.jobs) != 0 {
		t.Errorf("claimed %q, which have no bodies", c.ids())
	}
	if b := r.inspect(); b.later != 0 {
		t.Errorf("bucket %+v", b)
	}
}

// A full server parks jobs, too.
func TestLastChancesOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configure(settings{rateCount: 10_000})
	r.put(numbered(9)...)
	r.doom([]int{0, 1, 2})
	r.fill()
	if c := r.claim(ask{want: 3}); c.ids() != "j0 j3 j4" || c.lone != 1 {
		t.Errorf("claimed %q, lone %d", c.ids(), c.lone)
	}
	must.Equal(t, r.compare(), 0, "repairs")
}
