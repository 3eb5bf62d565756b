package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// What cancelled jobs leave is bounded, also while nothing is claimed: the list holds no more
// ids than jobs, and no more ids are remembered than dedupe_max.
func TestCancelLeavesNothing(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 10, dedupeMax: 20})
		r.put("first")
		for i := range 300 {
			id := fmt.Sprint("j", i)
			r.enqueue(nil, entry{id: id, priority: 1 + i%4})
			must.Be(t, r.cancel(id, ""), isCancelled, "cancel")
		}
		b := r.inspect()
		if b.waiting != 1 || b.unfinished != 1 || b.remembered != 20 || b.forgotten != 280 {
			t.Errorf("%d ids wait of %d jobs, %d are remembered and %d forgotten", b.waiting, b.unfinished, b.remembered, b.forgotten)
		}
		must.Equal(t, r.claim(ask{}).ids(), "first", "claimed")
	})
}

// An id that our client made is remembered for a minute, as where its job is done.
func TestCancelledIDIsRemembered(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{dedupe: 600 * second, inFlight: 2})
		r.enqueue(nil, entry{id: "mine"}, entry{id: "made", made: true}, entry{id: "dropped"}, entry{id: "droppedmade", made: true})
		for _, id := range []string{"mine", "made"} {
			r.cancel(id, "")
		}
		for _, lease := range r.claim(ask{}).jobs {
			r.settle(outcome{lease: lease, result: dead})
		}
		for _, id := range []string{"dropped", "droppedmade"} {
			r.cancel(id, "5")
		}
		r.wantStates(map[string]int64{"mine": isCancelled, "made": isCancelled, "dropped": isDropped, "droppedmade": isDropped})
		r.pass(60*second + 1)
		r.wantStates(map[string]int64{"mine": isCancelled, "made": 0, "dropped": isDropped, "droppedmade": 0})
	})
}

// A long list is searched near its ends only. What is left in its middle is bounded by the capacity.
func TestCancelInALongList(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	const n, reach, capacity = 24_000, 10_000, 26_000
	r.configure(settings{capacity: capacity})
	var some []string
	for i, id := range numbered(n) {
		if some = append(some, id); len(some) == 1000 || i == n-1 {
			r.put(some...)
			some = nil
		}
	}
	length := func() int64 { return r.llen(queueKey) }
	for _, at := range []int{0, reach - 1, n - 1, n - reach} {
		before := length()
		if r.cancel(fmt.Sprint("j", at), ""); length() != before-1 {
			t.Errorf("the id of job %d is left", at)
		}
	}
	before := length()
	if code := r.cancel(fmt.Sprint("j", n/2), ""); code != isCancelled || length() != before {
		t.Errorf("a job in the middle: %d, %d ids", code, length())
	}
	// With as many leftovers as the bucket may hold jobs, none is added.
	r.hset("settings", "capacity", 1)
	if r.cancel(fmt.Sprint("j", n/2+1), ""); length() != before-1 {
		t.Errorf("another one in the middle: %d ids, want %d", length(), before-1)
	}
}
