package lua_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// verbs notes how a client runs scripts, and can have a command refused.
type verbs struct {
	mu      sync.Mutex
	sent    []string
	refuses string // a verb
}

func (v *verbs) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (v *verbs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		v.note(cmd)
		if cmd.Name() == v.refuses {
			return refusal("NOPERM this user has no permissions to run the '" + v.refuses + "' command")
		}
		return next(ctx, cmd)
	}
}

func (v *verbs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			v.note(cmd)
		}
		return next(ctx, cmds)
	}
}

func (v *verbs) note(cmd redis.Cmder) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains([]string{"function", "fcall", "evalsha", "eval"}, cmd.Name()) {
		v.sent = append(v.sent, cmd.Name())
	}
}

func (v *verbs) take() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	sent := strings.Join(v.sent, " ")
	v.sent = nil
	return sent
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// withoutLibrary is a client of a server that has no library of functions.
func withoutLibrary(t *testing.T) *redis.Client {
	client := redistest.Start(t).Client()
	if err := client.FunctionFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return client
}

// functionsRig runs scripts as functions, and notes what is sent.
func functionsRig(t *testing.T) (*rig, *verbs) {
	client, v := withoutLibrary(t), &verbs{}
	lua.AsFunctions(client, func(err error) { t.Error(err) })
	client.AddHook(v)
	r := &rig{t: t, ctx: t.Context(), c: client}
	r.configure(1)
	return r, v
}

// Every script runs as a function; a server that has lost its libraries is given them again.
func TestFunctions(t *testing.T) {
	t.Parallel()
	r, v := functionsRig(t)
	if got := v.take(); got != "function function function fcall" { // two lists and a load
		t.Errorf("the first run sent %s", got)
	}
	r.configure(2)
	r.ok(r.c.FunctionFlush(r.ctx).Err())
	r.configure(3)
	if got := v.take(); got != "fcall function fcall function function function fcall" {
		t.Errorf("sent %s", got)
	}
	if got := r.c.HGet(r.ctx, r.settings()[0], "rate_count").Val(); got != "3" {
		t.Errorf("the rate is %s", got)
	}
	if err := r.c.Do(r.ctx, "function", "load", "replace", lua.Library()).Err(); err != nil {
		t.Error(err)
	}
}

func TestFunctionsInAPipeline(t *testing.T) {
	t.Parallel()
	r, v := functionsRig(t)
	calls := slices.Repeat([]lua.Call{r.flowsOf()}, 3)
	for n, want := range []string{
		"fcall fcall fcall",
		"fcall fcall fcall function function function evalsha evalsha evalsha eval fcall fcall", // it knows neither, and then both
		"fcall fcall fcall",
	} {
		if n == 1 {
			r.ok(r.c.FunctionFlush(r.ctx).Err())
		}
		v.take()
		for i, result := range lua.RunAll(r.ctx, r.c, calls) {
			if items, ok := result.Reply.([]any); !ok || len(items) < 4 {
				t.Errorf("result %d: %v", i, result)
			}
		}
		if got := v.take(); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
}

// A server that refuses to load is not asked with each run.
func TestFunctionsRefused(t *testing.T) {
	t.Parallel()
	client, v := withoutLibrary(t), &verbs{refuses: "function"}
	lua.AsFunctions(client, func(err error) { t.Error(err) })
	client.AddHook(v)
	r := &rig{t: t, ctx: t.Context(), c: client}
	for range 3 {
		r.configure(1)
	}
	if got := v.take(); got != "function function evalsha eval evalsha evalsha" {
		t.Errorf("sent %s", got)
	}
}

// Out of memory Redis runs no function, and the script decides what goes on.
func TestFunctionsOutOfMemory(t *testing.T) {
	t.Parallel()
	r, v := functionsRig(t)
	r.ok(r.c.ConfigSet(r.ctx, "maxmemory", "1").Err())
	v.take()
	if result := lua.RunAll(r.ctx, r.c, []lua.Call{r.extend()})[0]; result.Err != nil {
		t.Error(result.Err)
	}
	if got := v.take(); got != "fcall evalsha eval" {
		t.Errorf("sent %s", got)
	}
}

func TestScriptOf(t *testing.T) {
	t.Parallel()
	for _, cmd := range []*redis.Cmd{
		redis.NewCmd(t.Context(), "evalsha", lua.Claim.SHA(), 0), redis.NewCmd(t.Context(), "eval", lua.Claim.Text(), 0),
		redis.NewCmd(t.Context(), "fcall", "tundish_claim_012345678901_"+lua.Claim.SHA(), 0),
	} {
		if lua.ScriptOf(cmd) != lua.Claim {
			t.Errorf("%s runs no claim", cmd.Name())
		}
	}
	for _, cmd := range []*redis.Cmd{
		redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "get", lua.Claim.SHA()), redis.NewCmd(t.Context(), "fcall", "claim", 0),
		redis.NewCmd(t.Context(), "evalsha", 1, 0),
	} {
		if s := lua.ScriptOf(cmd); s != nil {
			t.Errorf("%s runs %s", cmd, s.Name())
		}
	}
}
