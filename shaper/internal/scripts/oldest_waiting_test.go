package scripts_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
)

// oldestOf runs oldest_waiting.lua for flows.
func (r *rig) oldestOf(mostBytes, keep int, came int64, id string, flows ...string) string {
	r.t.Helper()
	in := lua.NewReader(r.run(lua.OldestWaiting, r.keysOf(lua.OldestWaiting, flows...), mostBytes, keep, came, id))
	looked, at, found := in.Int(), in.Int(), in.Text()
	r.ok(in.Err())
	return fmt.Sprintf("%d flows, %d, %q", looked, at, found)
}

// The oldest job over the heads of all lists of all flows is found, kept, and told as the oldest of the bucket.
func TestOldestWaiting(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		start := r.now()
		r.place(placed{id: "delayed", flow: "later", state: isScheduled, in: second, scheduled: true}, placed{id: "flies", flow: "flying", state: isInFlight, in: 3600 * second})
		r.pass(second)
		r.place(placed{id: "a low", flow: "a b", priority: 4})
		r.pass(second)
		r.place(placed{id: "b", flow: "b"}, placed{id: "c", flow: "b"}, placed{id: "urgent", flow: "a b", priority: 1})
		r.pass(second)
		r.hset("flows", "later", stored.Flow{Scheduled: 1, Filled: ".d"}.String())
		listed := r.find(sweep{none: true, flowCursor: "0"}).listed
		slices.Sort(listed)
		if !slices.Equal(listed, []string{"a b", "b"}) {
			t.Errorf("an audit names the flows %q", listed)
		}
		must.Equal(t, r.inspect().oldest, 0, "before it is looked for, the oldest came at")
		for _, c := range []struct {
			mostBytes  int
			came       int64
			flows      []string
			want, also string
		}{
			{1000, 0, []string{"b", "a b", "none"}, fmt.Sprintf("3 flows, %d, %q", start+second, "a low"), "all"},
			{1, 0, []string{"b", "a b"}, fmt.Sprintf("1 flows, %d, %q", start+2*second, "b"), "no more bytes"},
			{1000, start, []string{"b", "a b"}, fmt.Sprintf("2 flows, %d, %q", start, "given"), "an older one is known"},
			{1000, 0, nil, `0 flows, 0, ""`, "no flows"},
			{1000, 0, []string{"flying", "later"}, `2 flows, 0, ""`, "nothing in lists"},
		} {
			given := ""
			if c.came > 0 {
				given = "given"
			}
			must.Equal(t, r.oldestOf(c.mostBytes, 0, c.came, given, c.flows...), c.want, "%s", c.also)
		}
		must.Equal(t, r.inspect().oldest, 0, "nothing is kept before all flows were looked at, but the oldest came at")
		for range 2 { // a script may be sent twice
			r.oldestOf(1000, 1, 0, "", "b", "a b")
		}
		r.pass(second)
		if got := r.inspect().oldest; got != start+second {
			t.Errorf("the oldest came %d after the start", got-start)
		}
		// It has left, and the next one is taken to be as old as it was.
		r.cancel("a low", "")
		if got := r.inspect(); got.oldest != got.now-2*second {
			t.Errorf("after the oldest has left, the oldest is %d old", got.now-got.oldest)
		}
		// Nothing waits. Then a whole audit forgets it.
		for _, id := range []string{"b", "c", "urgent", "delayed"} {
			r.cancel(id, "")
		}
		if got := r.inspect(); got.waiting != 0 || got.oldest != 0 {
			t.Errorf("with %d jobs waiting, the oldest came at %d", got.waiting, got.oldest)
		}
		r.find(sweep{none: true, flowCursor: "0"})
		if kept := r.c.HExists(r.ctx, r.key("count"), "oldest").Val(); kept {
			t.Error("an audit keeps the oldest of the one before")
		}
	})
}

// A job that is leased, or dead, does not wait any more.
func TestOldestHasLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000}, flowSettings{})
		r.putIn("f", 3, 0, "old", "new")
		r.pass(10 * second)
		r.oldestOf(1000, 1, 0, "", "f")
		jobs := r.drain(ask{want: 1}).jobs
		r.pass(5 * second)
		if got := r.inspect(); len(jobs) != 1 || jobs[0].id != "old" || got.now-got.oldest != 10*second {
			t.Errorf("after %+v were claimed the oldest is %d old", jobs, got.now-got.oldest)
		}
		r.settle(outcome{lease: jobs[0], result: dead})
		if got := r.inspect(); got.now-got.oldest != 10*second {
			t.Errorf("after it died the oldest is %d old", got.now-got.oldest)
		}
	})
}
