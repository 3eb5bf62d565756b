package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// relocate makes a step at a place, by the keys of which a rig is named.
func (r *rig) relocate(place, step string, generation int, more []string, args ...any) string {
	r.t.Helper()
	name := r.name
	r.name = place
	defer func() { r.name = name }()
	keys := r.keys("settings", "parked_settings", "body", "leases", "dead", "seen", "seen_window", "seen_minute", "callback_texts")
	return fmt.Sprint(r.run(lua.Relocate, append(keys, r.keys(more...)...), append([]any{step, generation}, args...)...))
}

// configureAt writes a conf as a process that knows a generation, and returns the answer without schema and revision.
func (r *rig) configureAt(place string, generation int) string {
	r.t.Helper()
	name := r.name
	r.name = place
	defer func() { r.name = name }()
	reply, ok := r.run(lua.Configure, r.keys("settings", "body", "dead", "parked_settings"), 1, 0, "", place, 1, "test", 0, "generation", generation, "rate_count", 1, "capacity", 5).([]any)
	if !ok {
		r.t.Fatalf("%v", reply)
	}
	if reply[0] == int64(0) {
		return "[0]"
	}
	return fmt.Sprint(append(reply[:1:1], reply[3:]...))
}

func (r *rig) is(what, got, want string) {
	r.t.Helper()
	must.Equal(r.t, got, want, "%s", what)
}

// A bucket goes from one place to another, and back. Every step may be repeated, and none with an older generation
// changes anything.
func TestRelocate(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		conf := func(place string) string {
			return fmt.Sprint(r.c.HGetAll(r.ctx, "tundish:{"+place+"}:b:"+place+":settings").Val())
		}
		r.is("configure", r.configureAt("b", 0), "[0]")
		r.c.HSet(r.ctx, r.key("settings"), "own:capacity", 5, "capacity", 7)
		for range 2 {
			r.is("check", r.relocate("c", "check", 1, nil), "[0 ]")
			r.is("leave", r.relocate("b", "leave", 1, nil, "c", 1, 0), "[0 c]")
			r.is("begin", r.relocate("c", "begin", 1, []string{"pace"}), "[0 ]")
		}
		r.is("the other way at the same time", r.relocate("b", "leave", 1, nil, "d", 1, 0), "[0 c]")
		r.is("the place that it has left", conf("b"), "map[generation:1 left_for:c]")
		r.is("the place that it comes to", conf("c"), "map[generation:1]")
		r.is("configure with the generation of before", r.configureAt("b", 0), "[4 1 c]")
		r.is("configure the new place too early", r.configureAt("c", 0), "[4 1 ]")
		for range 2 {
			r.is("put", r.relocate("c", "put", 1, []string{"parked_settings"}, "hash", 0, 0, "schema", 1, "revision", 0, "capacity", 7, "own:capacity", 5, "rate_count", 1), "[0 hash]")
			r.is("put a list", r.relocate("c", "put", 1, []string{"departed"}, "list", 0, 60_000, "a", "b", "c"), "[0 list]")
			r.is("put the rest of it", r.relocate("c", "put", 1, []string{"departed"}, "list", 2, 60_000, "c", "d"), "[0 list]")
		}
		r.is("put what has a gap", r.relocate("c", "put", 1, []string{"departed"}, "list", 9, 0, "x"), "[1]")
		r.is("put where it has left", r.relocate("b", "put", 0, []string{"pace"}, "hash", 0, 0, "a", "b"), "[1]")
		r.is("clear what is not left", r.relocate("c", "clear", 1, []string{"departed"}), "[1]")
		r.is("configure", r.configureAt("c", 1), "[0]")
		r.is("the override", r.c.HGet(r.ctx, "tundish:{c}:b:c:settings", "capacity").Val(), "7")
		r.is("the list", fmt.Sprint(r.c.LRange(r.ctx, "tundish:{c}:b:c:departed", 0, -1).Val()), "[a b c d]")
		r.is("put late", r.relocate("c", "put", 1, []string{"settings"}, "hash", 0, 0, "capacity", 1), "[1]")
		r.is("begin late", r.relocate("c", "begin", 1, []string{"settings"}), "[5 1]")
		r.is("clear late, by an older generation", r.relocate("b", "clear", 0, []string{"parked_settings"}), "[1]")
		r.is("clear", r.relocate("b", "clear", 1, []string{"parked_settings"}), "[0 ]")
		// And back again.
		r.is("leave", r.relocate("c", "leave", 2, nil, "b", 1, 0), "[0 b]")
		r.is("begin", r.relocate("b", "begin", 2, nil), "[0 ]")
		r.is("a late leave", r.relocate("b", "leave", 1, nil, "c", 1, 0), "[1]")
		r.is("a late clear", r.relocate("b", "clear", 1, nil), "[1]")
		r.is("configure, without the parked settings", r.configureAt("b", 2), "[0]")
		r.is("the generation", r.field("settings", "generation"), "2")
	})
}

// A bucket that holds something, or whose conf is newer, does not leave.
func TestRelocateRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{revision: 3})
		leave := func(schema, revision int) string { return r.relocate("b", "leave", 1, nil, "c", schema, revision) }
		r.is("an older revision", leave(1, 2), "[3 3]")
		r.is("an older schema", leave(0, 3), "[4 1]")
		r.put("j")
		r.is("a job", leave(1, 3), "[2 1 0 0 0 0 0]")
		r.is("look", r.relocate("b", "look", 0, nil), "[2 1 0 0 0 0 0]")
		lease := r.claim(ask{want: 1}).jobs[0]
		r.is("a lease", leave(1, 3), "[2 0 0 1 0 0 0]")
		r.settle(outcome{lease: lease, result: dead})
		r.is("a dead letter", leave(1, 3), "[2 0 1 0 0 0 0]")
		r.is("a place with jobs", r.relocate("b", "begin", 1, nil), "[2 0 1 0 0 0 0]")
		r.is("the conf", r.field("settings", "revision"), "3")
	})
}

// A bucket whose callbacks wait does not leave, and none comes where some wait.
func TestRelocateRefusesCallbacks(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{revision: 3})
		r.hset("callback_texts", "1 1 j", "text")
		r.is("leave", r.relocate("b", "leave", 1, nil, "c", 1, 3), "[2 0 0 0 0 0 1]")
		r.ok(r.c.HSet(r.ctx, "tundish:{c}:b:c:callback_texts", "1 1 j", "text").Err())
		r.is("begin", r.relocate("c", "begin", 1, nil), "[2 0 0 0 0 0 1]")
	})
}

// Assign writes only what the caller has read.
func TestAssign(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		index := []string{"tundish:buckets"}
		r.c.HSet(r.ctx, index[0], "b", "b")
		assign := func(args ...any) string { return fmt.Sprint(r.run(lua.Assign, index, append([]any{"b"}, args...)...)) }
		r.is("the first change", assign("b", "", "c", "1 b"), "1")
		r.is("again", assign("b", "", "c", "1 b"), "0")
		r.is("of another generation", assign("c", "1", "d", "2 c"), "0")
		r.is("of another tag", assign("b", "1 b", "d", "2 c"), "0")
		r.is("the next", assign("c", "1 b", "c", "1"), "1")
		r.is("the index", fmt.Sprint(r.c.HGetAll(r.ctx, index[0]).Val()), "map[b:c b:generation:1]")
	})
}
