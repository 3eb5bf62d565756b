package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A header is read as people read it: further lines continue a description, and nested lines are not part of it.
func TestDescriptionsOfKeys(t *testing.T) {
	t.Parallel()
	keys := redisKeys{}
	_, err := keys.read("lua/lib/pool.lua", "-- pool.lua: a pool.\n--   …:pace  hash  slot,\n--          sums:\n--            weights  of the busy\n--              buckets\n--          and more\n--   …:gaps  zset  free slots\n--   see slots.lua\nlocal x\n--   …:late  hash  not in the header\n")
	must.OK(t, err)
	given, err := keys.read("lua/claim.lua", "-- KEYS[1]  …:dead  zset  id -> time\n--          of death\n-- KEYS[2...]  of a flow …:gaps, a zset\n-- ARGV[1]  …:none\n")
	must.OK(t, err)
	must.Equal(t, strings.Join(given, " "), "…:dead …:gaps", "keys of claim.lua")
	for name, want := range map[string]string{"…:pace": "slot, sums: and more", "…:gaps": "free slots", "…:dead": "id -> time of death"} {
		must.Equal(t, keys[name].holds(), want, "%s", name)
	}
	must.Equal(t, len(keys), 3, "keys")
	_, err = keys.read("lua/sweep.lua", "-- KEYS[1]  …:dead  list  ids\n")
	must.Equal(t, fmt.Sprint(err), "…:dead is a list here, and a zset in another header", "two types")
}
