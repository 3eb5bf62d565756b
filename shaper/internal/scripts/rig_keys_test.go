package scripts_test

import (
	"cmp"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// names are those of the bucket's keys.
func (r *rig) names() store.Keys {
	names := store.TaggedKeys(cmp.Or(r.pool, r.name), r.name)
	switch {
	case r.hasGroups:
		return names.As(codec.LevelsGroups)
	case r.hasFlows:
		return names.As(codec.LevelsFlows)
	}
	return names
}

// keysOf are the keys of a script, for these flows; a bucket without flows has the flow "".
func (r *rig) keysOf(script *lua.Script, flows ...string) []string {
	return r.names().Of(script, flows...)
}

func (r *rig) key(name string) string { return r.names().Prefix + name }

func (r *rig) keys(names ...string) []string {
	for i, name := range names {
		names[i] = r.key(name)
	}
	return names
}

func (r *rig) poolKey(name string) string { return store.PoolPrefix(r.pool) + name }

// enqueueKeys are those of enqueue.lua for jobs of these flows, and how it is told of the last ones.
func (r *rig) enqueueKeys(limits []string, flows ...string) (keys []string, told string) {
	names := r.names()
	keys = names.Fixed(nil, lua.Enqueue, flows...)
	for _, limit := range limits {
		keys = append(keys, r.keys("limit:"+limit, "limit_keys", "limit:overflow")...)
	}
	return names.ForEstimates(names.More(keys, lua.Enqueue, flows, nil), flows, true)
}

// What a test writes by hand into a key of the bucket, as another version or a fault would have: a command of Redis each, on the key of this name.

func (r *rig) hset(key string, pairs ...any) {
	r.t.Helper()
	r.ok(r.c.HSet(r.ctx, r.key(key), pairs...).Err())
}

func (r *rig) hdel(key string, fields ...string) {
	r.t.Helper()
	r.ok(r.c.HDel(r.ctx, r.key(key), fields...).Err())
}

func (r *rig) del(keys ...string) {
	r.t.Helper()
	r.ok(r.c.Del(r.ctx, r.keys(keys...)...).Err())
}

func (r *rig) zadd(key, member string, score int64) {
	r.t.Helper()
	r.ok(r.c.ZAdd(r.ctx, r.key(key), redis.Z{Member: member, Score: float64(score)}).Err())
}

func (r *rig) zrem(key string, members ...any) {
	r.t.Helper()
	r.ok(r.c.ZRem(r.ctx, r.key(key), members...).Err())
}

func (r *rig) rpush(key string, values ...any) {
	r.t.Helper()
	r.ok(r.c.RPush(r.ctx, r.key(key), values...).Err())
}

func (r *rig) lpush(key string, values ...any) {
	r.t.Helper()
	r.ok(r.c.LPush(r.ctx, r.key(key), values...).Err())
}

// What a key of the bucket holds.

func (r *rig) hash(key string) map[string]string {
	r.t.Helper()
	return must.Get(r.c.HGetAll(r.ctx, r.key(key)).Result())(r.t)
}

// stored is a field of a hash, which has to be there.
func (r *rig) stored(key, field string) string {
	r.t.Helper()
	return must.Get(r.c.HGet(r.ctx, r.key(key), field).Result())(r.t)
}

// field is a field of a hash, "" without it.
func (r *rig) field(key, field string) string {
	r.t.Helper()
	text, err := r.c.HGet(r.ctx, r.key(key), field).Result()
	if !errors.Is(err, redis.Nil) {
		r.ok(err)
	}
	return text
}

func (r *rig) elements(key string) []string {
	r.t.Helper()
	return must.Get(r.c.LRange(r.ctx, r.key(key), 0, -1).Result())(r.t)
}

func (r *rig) members(key string) []string {
	r.t.Helper()
	return must.Get(r.c.ZRange(r.ctx, r.key(key), 0, -1).Result())(r.t)
}

func (r *rig) scored(key string) []redis.Z {
	r.t.Helper()
	return must.Get(r.c.ZRangeWithScores(r.ctx, r.key(key), 0, -1).Result())(r.t)
}

func (r *rig) hlen(key string) int64 {
	r.t.Helper()
	return must.Get(r.c.HLen(r.ctx, r.key(key)).Result())(r.t)
}

func (r *rig) zcard(key string) int64 {
	r.t.Helper()
	return must.Get(r.c.ZCard(r.ctx, r.key(key)).Result())(r.t)
}

func (r *rig) llen(key string) int64 {
	r.t.Helper()
	return must.Get(r.c.LLen(r.ctx, r.key(key)).Result())(r.t)
}

// exists is how many of the keys there are.
func (r *rig) exists(keys ...string) int64 {
	r.t.Helper()
	return must.Get(r.c.Exists(r.ctx, r.keys(keys...)...).Result())(r.t)
}
