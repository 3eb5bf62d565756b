package lua_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(redistest.Main(m))
}

func TestScriptsLoad(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		for _, script := range lua.All() {
			sha, err := client.ScriptLoad(t.Context(), script.Text()).Result()
			if err != nil || sha != script.SHA() {
				t.Errorf("%s: loaded as %q, %v; want %s", script.Name(), sha, err, script.SHA())
			}
		}
	})
}

// A server that restarted or failed over knows no script any more.
func TestRunOfAnUnknownScript(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		var observed []string
		observe := lua.Observer(func(script string, _ durationType, err error) {
			if err != nil {
				t.Errorf("observed %v", err)
			}
			observed = append(observed, script)
		})
		keys := r.settings()
		for range 2 {
			r.ok(r.c.ScriptFlush(r.ctx).Err())
			if _, err := lua.Configure.Run(r.ctx, r.c, observe, keys, 1, 0, "", "", 1, "test", 0, "capacity", 5); err != nil {
				t.Fatal(err)
			}
		}
		if len(observed) != 2 || observed[0] != "configure" {
			t.Errorf("observed %v", observed)
		}
		flowsOf := r.flowsOf()
		extend := r.extend()
		for _, flush := range []bool{true, false} {
			if flush {
				r.ok(r.c.ScriptFlush(r.ctx).Err())
				_ = lua.RunAll(r.ctx, r.c, []lua.Call{flowsOf}) // one of the two is known
			}
			results := lua.RunAll(r.ctx, r.c, []lua.Call{extend, flowsOf, extend})
			for i, named := range []bool{false, true, false} {
				if items, ok := results[i].Reply.([]any); !ok || named && len(items) < 4 || !named && len(items) != 1 {
					t.Errorf("result %d is %v, with %d items", i, results[i], len(items))
				}
			}
		}
		if results := lua.RunAll(r.ctx, r.c, nil); len(results) != 0 {
			t.Errorf("RunAll of nothing = %v", results)
		}
	})
}

// TestUnknownScriptIsSentOnce: of many runs of scripts that a server does not know, one has the text of each.
func TestUnknownScriptIsSentOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		flowsOf := r.flowsOf()
		extend := r.extend()
		r.ok(r.c.ScriptFlush(r.ctx).Err())
		sent := &verbs{}
		r.c.AddHook(sent)
		for i, result := range lua.RunAll(r.ctx, r.c, []lua.Call{extend, flowsOf, extend, flowsOf, extend}) {
			if result.Err != nil {
				t.Errorf("result %d: %v", i, result.Err)
			}
		}
		texts := 0 // none where they run as functions
		verbs := sent.take()
		for _, verb := range strings.Fields(verbs) {
			if verb == "eval" {
				texts++
			}
		}
		if texts > 2 {
			t.Errorf("%d texts of two scripts: sent %s", texts, verbs)
		}
	})
}

func TestRunReportsFaults(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.ok(r.c.Set(r.ctx, r.settings()[0], "not a hash", 0).Err())
		failed := false
		_, err := lua.Configure.Run(r.ctx, r.c, func(_ string, _ durationType, err error) { failed = err != nil }, r.settings(), 1, 0, "", "", 1, "test", 0, "a", 1)
		if err == nil || !failed {
			t.Errorf("Run = %v, observed as a failure: %t", err, failed)
		}
		calls := []lua.Call{
			{Script: lua.Configure, Keys: r.settings(), Args: []any{1, 0, "", "", 1, "test", 0, "a", 1}},
			r.extend(),
		}
		if results := lua.RunAll(r.ctx, r.c, calls); results[0].Err == nil || results[1].Err != nil {
			t.Errorf("RunAll hides a fault, or has it spoil the rest: %v", results)
		}
	})
}

func TestReader(t *testing.T) {
	t.Parallel()
	r := lua.NewReader([]any{int64(7), "text"})
	if n, text := r.Int(), r.Text(); n != 7 || text != "text" || r.Left() != 0 || r.Err() != nil {
		t.Errorf("read %d %q, %d left, %v", n, text, r.Left(), r.Err())
	}
	for name, read := range map[string]func() *lua.Reader{
		"no array":       func() *lua.Reader { return lua.NewReader(int64(1)) },
		"nil":            func() *lua.Reader { return lua.NewReader(nil) },
		"too short":      func() *lua.Reader { r := lua.NewReader([]any{int64(1)}); r.Int(); r.Int(); return r },
		"text for int":   func() *lua.Reader { r := lua.NewReader([]any{"1", int64(1)}); r.Int(); return r },
		"int for text":   func() *lua.Reader { r := lua.NewReader([]any{int64(1), "1"}); r.Text(); return r },
		"nil in it":      func() *lua.Reader { r := lua.NewReader([]any{nil, "1"}); r.Text(); return r },
		"an error in it": func() *lua.Reader { r := lua.NewReader([]any{redis.Nil, "1"}); r.Int(); return r },
	} {
		r := read()
		fault := r.Err()
		if fault == nil || r.Left() != 0 || r.Int() != 0 || r.Text() != "" || r.Err() != fault { //nolint:errorlint // the very same
			t.Errorf("%s: %v, %d left, then %v", name, fault, r.Left(), r.Err())
		}
	}
	for _, reply := range []any{"1", nil, []any{"1"}, []any{int64(1), nil}} {
		if n, err := lua.Integers(reply); err == nil {
			t.Errorf("Integers(%v) = %v", reply, n)
		}
	}
	for _, reply := range []any{"1", []any{}, []any{int64(1), int64(2)}} {
		if n, err := lua.IntegersFor(reply, 1); err == nil {
			t.Errorf("IntegersFor(%v, 1) = %v", reply, n)
		}
	}
}

// What scripts tell in microseconds may be more than a Duration holds.
func TestMicroseconds(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]time.Duration{
		0: 0, 1: time.Microsecond, -1: -time.Microsecond, 253_402_214_400_000_000: math.MaxInt64 / 1000 * 1000,
		math.MaxInt64: math.MaxInt64 / 1000 * 1000, math.MinInt64: -math.MaxInt64 / 1000 * 1000,
	} {
		if got := lua.Microseconds(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
