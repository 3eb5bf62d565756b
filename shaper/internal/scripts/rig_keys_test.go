package scripts_test

import (
	"cmp"

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

// of are the keys of a script, for these flows; a bucket without flows has the flow "".
func (r *rig) of(script *lua.Script, flows ...string) []string { return r.names().Of(script, flows...) }

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
