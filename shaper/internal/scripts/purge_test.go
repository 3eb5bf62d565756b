package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// A purge drops what waits when it begins, at once for all claims, and nothing
// else: what is in flight, dead, or comes later stays. It is counted, goes on
// where it was cut off, and is answered alike when it is sent again.
func TestPurge(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		if reply := r.run(lua.Purge, r.keysOf(lua.Purge, ""), "p", 0, 10, 1000, 0, ""); fmt.Sprint(reply) != "[1]" {
			t.Errorf("purged a bucket that is not there: %v", reply)
		}
		r.configure(settings{rateCount: 10_000})
		must.Equal(t, r.purge(purge{id: "nothing"}), (purged{own: true}), "purged nothing")
		r.put("dead", "retrying", "back", "flying")
		flying := r.claim(ask{}).jobs
		r.settle(outcome{lease: flying[0], result: dead}, outcome{lease: flying[1], result: retry, delay: 60 * second})
		r.put(numbered(10)...)
		r.put("tomb")
		r.putAt("+60000000", "scheduled")
		r.cancelDeep("tomb")

		if p := r.purge(purge{id: "p1", atMost: 4}); !p.own || p.removed != 4 || p.done != 4 || p.left != 9 {
			t.Fatalf("the first chunk: %+v", p)
		}
		// All of it is gone from here on, for claims and for whoever looks.
		r.pass(120 * second)
		if c := r.claim(ask{}); len(c.jobs) != 0 {
			t.Errorf("claimed %q", c.ids())
		}
		r.wantStates(map[string]int64{"j0": isCancelled, "j9": isCancelled, "retrying": isCancelled, "scheduled": isCancelled,
			"flying": isInFlight, "back": isInFlight, "dead": isDead})
		if b := r.inspect(); b.unpurged != 9 || b.unfinished != 2+6+1 || b.scheduled != 1 || b.purged != 4 {
			t.Errorf("bucket %+v", b)
		}
		// What comes now is none of its business: new jobs and what was in flight.
		r.put("new1")
		r.putAt("+600000000", "newlater")
		r.settle(outcome{lease: flying[2], result: returned})
		r.settle(outcome{lease: flying[3], result: retry, delay: 600 * second})
		if s := r.sweep(sweep{cursor: "0"}); s.repaired != 0 || s.missing != 0 {
			t.Errorf("swept %+v", s)
		}
		if p := r.purge(purge{id: "p2", atMost: 5}); p.own || p.removed != 5 || p.done != 9 || p.left != 4 {
			t.Errorf("another purge goes on with the first: %+v", p)
		}
		if p := r.purge(purge{id: "p1", atMost: 100}); !p.own || p.removed != 3 || p.done != 12 || p.left != 0 {
			t.Errorf("the last chunk: %+v", p)
		}
		must.Equal(t, r.purge(purge{id: "p1"}), (purged{own: true, done: 12}), "sent again")
		if p := r.purge(purge{}); p.own || p.removed != 0 {
			t.Errorf("without an id it began one: %+v", p)
		}
		b := r.inspect()
		if b.unfinished != 3 || b.waiting != 2 || b.later != 2 || b.scheduled != 1 || b.dead != 1 || b.purged != 12 || b.unpurged != 0 {
			t.Errorf("bucket %+v", b)
		}
		r.wantStates(map[string]int64{"new1": isQueued, "newlater": isScheduled, "back": isQueued, "flying": isRetrying, "dead": isDead})
		must.Equal(t, r.claim(ask{}).ids(), "back new1", "claimed")
		// The ids are remembered.
		for i, a := range r.enqueue(nil, entry{id: "j3"}, entry{id: "j3", content: "other"}, entry{id: "scheduled"}) {
			if want := []int64{3, 4, 3}[i]; a.code != want || want == 3 && a.position != isCancelled {
				t.Errorf("a purged id again: %+v", a)
			}
		}
		if p := r.purgeAll(purge{id: "p3", keepLater: true}); p.done != 0 {
			t.Errorf("purged %+v, nothing was in the list", p)
		}
		if p := r.purgeAll(purge{id: "p4"}); p.done != 2 {
			t.Errorf("purged %+v, two were for later", p)
		}
	})
}

// An id that a cancelled job has left in the list is not the job for later that
// has it now.
func TestPurgeKeepsLaterUnderAnIDUsedAgain(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000, dedupe: -1})
		r.put("retried")
		r.cancelDeep("retried") // its id stays in the list
		r.putAt("+1", "retried")
		r.pass(2)
		flying := r.claim(ask{want: 1}).jobs
		r.put("a", "b")
		r.cancelDeep("a")
		r.putAt("+60000000", "a")
		for _, lease := range flying {
			r.settle(outcome{lease: lease, result: retry, delay: 60 * second})
		}
		if p := r.purgeAll(purge{id: "p", keepLater: true, atMost: 1}); p.done != 1 {
			t.Errorf("purged %+v, want b alone", p)
		}
		r.wantStates(map[string]int64{"a": isScheduled, "retried": isRetrying})
		if s := r.sweep(sweep{cursor: "0"}); s.repaired != 0 || s.missing != 0 {
			t.Errorf("swept %+v", s)
		}
		r.pass(61 * second)
		if c := r.claim(ask{}); len(c.jobs) != 2 {
			t.Errorf("claimed %q", c.ids())
		}
	})
}

// An id that was cancelled and used again is that of another job: the purge
// takes the one that was there when it began, not one that comes afterwards.
func TestPurgeAndIDsUsedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 10_000, dedupe: -1})
		r.put("a", "b", "c", "d")
		r.putAt("+60000000", "e")
		r.cancelDeep("a")
		r.cancelDeep("b")
		r.put("b")
		if p := r.purge(purge{id: "p", atMost: 1}); p.removed != 0 || p.left != 5 {
			t.Fatalf("the first chunk: %+v", p)
		}
		for _, id := range []string{"c", "e"} {
			must.Equal(t, r.cancel(id, ""), isCancelled, "cancel %s", id)
		}
		r.put("a", "c")
		r.putAt("+50000000", "e")
		if p := r.purgeAll(purge{id: "p"}); p.done != 2 { // b and d
			t.Errorf("purged %+v", p)
		}
		r.wantStates(map[string]int64{"a": isQueued, "c": isQueued, "e": isScheduled, "b": 0, "d": 0})
		if b := r.inspect(); b.unfinished != 2 || b.scheduled != 1 || b.waiting != 2 || b.later != 1 || b.remembered != 0 {
			t.Errorf("bucket %+v", b)
		}
		must.Equal(t, r.claim(ask{}).ids(), "a c", "claimed")
	})
}

// What a purge whose process died has left is shown by the sweep, once it has
// made no progress for a while.
func TestSweepFindsALostPurge(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put(numbered(20)...)
		r.purge(purge{id: "p", atMost: 5})
		if s := r.sweep(sweep{}); s.unpurged != 0 {
			t.Errorf("at once: %+v", s)
		}
		r.ok(r.c.HIncrBy(r.ctx, r.key("count"), "purge_at", -11*second).Err())
		if s := r.sweep(sweep{}); s.unpurged != 15 || s.missing != 0 {
			t.Errorf("later: %+v", s)
		}
		if p := r.purgeAll(purge{}); p.done != 20 || p.own {
			t.Errorf("the sweeper's chunks: %+v", p)
		}
		if s := r.sweep(sweep{}); s.unpurged != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

// Large bodies make small chunks; as many ids are remembered as may be; what no
// program can read goes too.
func TestPurgeBounds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{dedupeMax: 30})
		large := strings.Repeat("x", 1000)
		for _, id := range numbered(40) {
			r.enqueue(nil, entry{id: id, content: "" + id})
			r.hset("body", id, "0 1 00000000000c001 \n"+large)
		}
		r.hset("body", "j1", "no job of ours")
		sizes := []int64{}
		for {
			p := r.purge(purge{id: "p", mostBytes: 10_000})
			sizes = append(sizes, p.removed)
			if p.left == 0 {
				break
			}
		}
		must.Equal(t, fmt.Sprint(sizes), "[11 10 10 9]", "chunks of %v", sizes)
		b := r.inspect()
		if b.unfinished != 0 || b.remembered != 30 || b.forgotten != 9 {
			t.Errorf("bucket %+v", b)
		}
		keys := must.Get(r.c.Keys(r.ctx, "*").Result())(r.t)
		slices.Sort(keys)
		must.Equal(t, fmt.Sprint(keys), fmt.Sprint(r.keys("count", "pace", "seen", "seen_window", "settings")), "left")
	})
}
