package lua_test

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// rig is a bucket on a server, for tests of how scripts run. What they do is held in shaper/internal/scripts.
type rig struct {
	t   *testing.T
	ctx context.Context
	c   redis.UniversalClient
}

func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) { test(t, &rig{t: t, ctx: t.Context(), c: client}) })
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// keys are the first ones of a script.
func (r *rig) keys(script *lua.Script) []string {
	names := slices.Clone(script.FixedKeys())
	for i, name := range names {
		names[i] = "tundish:{b}:b:b:" + name
	}
	return names
}

// configure writes a rate, under a revision of its own.
func (r *rig) configure(rate int) {
	r.t.Helper()
	_, err := lua.Configure.Run(r.ctx, r.c, nil, r.settings(), 1, 0, "", "b", 1, "test", 0, "rate_count", rate, "rate_per", 1_000_000)
	r.ok(err)
}

// extend extends the lease of a job that does not exist.
func (r *rig) extend() lua.Call {
	return lua.Call{Script: lua.Extend, Keys: r.keys(lua.Extend), Args: []any{1000, "d", "", "j", 1, "c"}}
}

// flowsOf asks for the flows of four jobs.
func (r *rig) flowsOf() lua.Call {
	return lua.Call{Script: lua.FlowsOf, Keys: r.keys(lua.FlowsOf), Args: []any{1000, 1, "a", "b", "c", "d"}}
}

// settings is the key of configure.lua that is not of a bucket only.
func (r *rig) settings() []string { return r.keys(lua.Configure)[:1] }
