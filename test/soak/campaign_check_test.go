//go:build soak

package soak

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
)

// invariants looks at one bucket of a pool in one run, so that nothing changes meanwhile. It returns what is wrong: an id that is in no place or in
// two, a count that is not the size of its set, a bound that is passed.
//
// KEYS[1] is what the bucket's keys begin with, KEYS[2] what those of its pool begin with; ARGV are the most jobs in flight of the bucket, of the pool,
// of a group and of a flow.
const invariants = `
local b, p, wrong = KEYS[1], KEYS[2], {}
local function fault(...) if #wrong < 20 then wrong[#wrong + 1] = string.format(...) end end
local places, followers = {}, {}
local function put(id, place) places[id] = (places[id] and places[id] .. ' and ' or '') .. place end
for _, key in ipairs(redis.call('KEYS', b .. 'q:*')) do
  for _, id in ipairs(redis.call('LRANGE', key, 0, -1)) do put(id, 'list') end
end
for _, key in ipairs(redis.call('KEYS', b .. 'later:*')) do
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do put(id, 'later') end
end
for _, key in ipairs(redis.call('KEYS', b .. 'purged*')) do
  local kind = redis.call('TYPE', key).ok
  for _, id in ipairs(redis.call(kind == 'list' and 'LRANGE' or 'ZRANGE', key, 0, -1)) do put(id, 'purged') end
end
local leases, dead = redis.call('ZRANGE', b .. 'leases', 0, -1), redis.call('ZRANGE', b .. 'dead', 0, -1)
for _, id in ipairs(leases) do put(id, 'leases') end
for _, id in ipairs(dead) do put(id, 'dead') end
local ids = redis.call('HKEYS', b .. 'body')
for _, id in ipairs(ids) do
  if not places[id] then fault('job %s is in no place', id)
  elseif string.find(places[id], ' and ', 1, true) then fault('job %s is in %s', id, places[id]) end
end
local in_flight = #leases - redis.call('ZCARD', b .. 'followers')
local function sums(key, bound)
  local unfinished, flying = 0, 0
  local all = redis.call('HGETALL', b .. key)
  for i = 1, #all, 2 do
    local state = string.gsub(all[i + 1], '^@%S+ ', '')
    local u, s, f, filled = string.match(state, '^%S+ %S+ %S+ %S+ (%d+) (%d+) (%d+) ?(%S*)')
    if not u then fault('%s %s cannot be read: %s', key, all[i], state) break end
    local batched = tonumber(string.match(filled, '%+(%d+)') or 0)
    unfinished, flying = unfinished + u + s, flying + f
    if f - batched > bound then fault('%s %s has %d in flight, its bound is %d', key, all[i], f - batched, bound) end
  end
  if unfinished ~= #ids - #dead then fault('%s count %d unfinished jobs, there are %d', key, unfinished, #ids - #dead) end
  if flying ~= #leases then fault('%s count %d jobs in flight, there are %d leases', key, flying, #leases) end
end
sums('flows', tonumber(ARGV[4]))
sums('groups', tonumber(ARGV[3]))
if in_flight > tonumber(ARGV[1]) then fault('the bucket has %d in flight, its bound is %s', in_flight, ARGV[1]) end
local pooled = tonumber(redis.call('HGET', p .. 'pace', 'in_flight') or 0)
if pooled > tonumber(ARGV[2]) then fault('the pool has %d in flight, its bound is %s', pooled, ARGV[2]) end
return wrong`

// checkInvariants returns what is wrong with a bucket, "" if nothing is, or if Redis does not answer.
func checkInvariants(ctx context.Context, client *redis.Client, bucket, pool string, bounds ...any) string {
	reply, err := client.Eval(ctx, invariants, []string{"tundish:{" + pool + "}:b:" + bucket + ":", "tundish:{" + pool + "}:p:" + pool + ":"}, bounds...).StringSlice()
	if err != nil {
		if strings.Contains(err.Error(), "user_script") { // the check itself is broken
			return err.Error()
		}
		return ""
	}
	return strings.Join(reply, "\n")
}

// TestInvariantsAreSeen: what is planted by hand is found.
func TestInvariantsAreSeen(t *testing.T) {
	client, prefix := redistest.Start(t).Client(), "tundish:{p}:b:b:"
	check := func() string { return checkInvariants(t.Context(), client, "b", "p", 2, 2, 2, 2) }
	do := func(args ...any) {
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("HSET", prefix+"body", "a", "x", "b", "x")
	do("RPUSH", prefix+"q:normal:f", "a")
	do("ZADD", prefix+"leases", 1, "b")
	do("HSET", prefix+"flows", "1:gf", "0 0 - 0 2 0 1 .n")
	do("HSET", prefix+"groups", "g", "0 0 - 0 2 0 1 .")
	if wrong := check(); wrong != "" {
		t.Fatalf("nothing is wrong: %s", wrong)
	}
	for _, c := range []struct {
		plant, undo []any
		want        string
	}{
		{[]any{"ZADD", prefix + "later:f", 1, "a"}, []any{"DEL", prefix + "later:f"}, "job a is in list and later"},
		{[]any{"HSET", prefix + "body", "c", "x"}, []any{"HDEL", prefix + "body", "c"}, "job c is in no place"},
		{[]any{"HSET", prefix + "flows", "1:gf", "0 0 - 0 3 0 1 .n"}, []any{"HSET", prefix + "flows", "1:gf", "0 0 - 0 2 0 1 .n"}, "flows count 3 unfinished jobs, there are 2"},
		{[]any{"HSET", prefix + "groups", "g", "0 0 - 0 2 0 3 ."}, []any{"HSET", prefix + "groups", "g", "0 0 - 0 2 0 1 ."}, "groups g has 3 in flight, its bound is 2"},
		{[]any{"HSET", "tundish:{p}:p:p:pace", "in_flight", 3}, []any{"DEL", "tundish:{p}:p:p:pace"}, "the pool has 3 in flight, its bound is 2"},
	} {
		do(c.plant...)
		if wrong := check(); !strings.Contains(wrong, c.want) {
			t.Errorf("%v is not found: %q", c.plant, wrong)
		}
		do(c.undo...)
	}
}
