package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// configureFrom configures a bucket whose conf of schema 1 may be there.
func (r *rig) configureFrom(schema int) string {
	r.t.Helper()
	reply, ok := r.run(lua.Configure, r.keys("settings", "body", "dead", "conf_aside", "conf", "leases"), schema, 0, "", r.name, 1, "test", 0,
		"generation", 0, "rate_count", 5, "capacity", 50).([]any)
	if !ok {
		r.t.Fatalf("%v", reply)
	}
	if reply[0] == int64(0) {
		reply = reply[:3]
	}
	return fmt.Sprint(reply)
}

// Data of schema 1 is refused while there is something in it, and taken over with what operators have set once it is empty. A
// program of then finds a bucket that is not configured and that it may not configure.
func TestDataOfSchemaOne(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		conf := func(name string) string {
			fields := r.hash(name)
			maps.DeleteFunc(fields, func(field, _ string) bool {
				return slices.Contains([]string{"by", "started", "owned", "changes"}, field)
			})
			return fmt.Sprint(fields)
		}
		r.hset("conf", "schema", 1, "revision", 0, "rate_count", 9, "own:rate_count", 5, "set:rate_count", "7 anna", "capacity", 40)
		r.hset("body", "waits", "x", "flies", "x", "died", "x")
		r.ok(r.c.ZAdd(r.ctx, r.key("leases"), redis.Z{Member: "flies"}).Err())
		r.ok(r.c.ZAdd(r.ctx, r.key("dead"), redis.Z{Member: "died"}).Err())
		before := conf("conf")
		r.is("with jobs", r.configureFrom(2), "[5 1 0 1 1 1 0 0 0]")
		if got := conf("conf"); got != before || conf("settings") != "map[]" {
			t.Errorf("a refusal has changed %s to %s and %s", before, got, conf("settings"))
		}
		r.ok(r.c.Del(r.ctx, r.keys("body", "leases", "dead")...).Err())
		for range 2 { // sent twice, too
			r.is("empty", r.configureFrom(2), "[0 2 0]")
			r.hdel("settings", "callers")
			r.is("settings", conf("settings"), "map[capacity:50 generation:0 own:rate_count:5 rate_count:9 revision:0 schema:2 set:rate_count:7 anna]")
			r.is("what a program of then sees", conf("conf"), "map[schema:2]")
		}
		r.is("configure.lua of then", fmt.Sprint(r.run(lua.Configure, r.keys("conf", "body", "dead", "move"), 1, 0, "", r.name, 1, "test", 0, "rate_count", 5)), "[2 2 0]")
		r.is("a newer schema", fmt.Sprint(r.c.HSet(r.ctx, r.key("conf"), "schema", 3).Err(), r.configureFrom(2)), "<nil>[2 3 0]")
	})
}

// Ids that data of schema 1 remembers are remembered until their windows end, and then forgotten.
func TestRememberedIDsOfSchemaOne(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		const n = 700
		for i := range n {
			ends := r.now() + int64(i+1)*second
			r.hset("seen", fmt.Sprint("s", i), fmt.Sprintf("AAAAAAAAAAA6%d", ends))
			r.zadd("seen_until", fmt.Sprint("s", i), ends)
		}
		for range 2 {
			r.sweep(sweep{})
		}
		ids := r.elements("seen_window")
		if len(ids) != n || ids[0] != "s0" || ids[n-1] != "s699" || r.exists("seen_until") != 0 {
			t.Errorf("%d ids, the first ones %q", len(ids), ids[:min(len(ids), 3)])
		}
		r.pass(100 * second)
		r.sweep(sweep{})
		must.Equal(t, r.hlen("seen"), n-100, "ids are remembered after 100 have ended, of %d", n)
	})
}
