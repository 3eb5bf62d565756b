package lua_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// changes are ways in which another user takes over the functions of a library.
var changes = map[string]func(library string) string{
	"other code under the same name":          func(library string) string { return library + "-- and more" },
	"the same functions of another library":   func(library string) string { return strings.Replace(library, "name=tundish_", "name=other_", 1) },
	"one of the functions of another library": oneFunction,
}

func oneFunction(library string) string {
	at := strings.LastIndex(library, "redis.register_function('")
	name, _, _ := strings.Cut(library[at+len("redis.register_function('"):], "'")
	return fmt.Sprintf("#!lua name=other\nredis.register_function('%s', function() return 'taken over' end)", name)
}

// functionsOf runs scripts as functions, and hands over what is reported.
func functionsOf(t *testing.T) (r *rig, v *verbs, reports chan error, due func()) {
	client := withoutLibrary(t)
	v, reports = &verbs{}, make(chan error, 8)
	due = lua.AsFunctionsDue(client, func(err error) { reports <- err })
	client.AddHook(v)
	return &rig{t: t, ctx: t.Context(), c: client}, v, reports, due
}

func (r *rig) replaceLibrary(text string) {
	r.t.Helper()
	r.ok(r.c.FunctionFlush(r.ctx).Err())
	r.ok(r.c.FunctionLoad(r.ctx, text).Err())
}

// TestChangedBefore starts a client beside a library that another user has changed: none of its functions runs.
func TestChangedBefore(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, v, reports, _ := functionsOf(t)
			r.replaceLibrary(change(lua.Library()))
			v.take()
			r.configure(1)
			r.configure(2)
			if got := v.take(); strings.Contains(got, "fcall") || !strings.HasSuffix(got, "evalsha eval evalsha") {
				t.Errorf("sent %s", got)
			}
			if err := <-reports; !errors.Is(err, lua.ErrLibraryChanged) {
				t.Errorf("reported %v", err)
			}
			if len(reports) != 0 {
				t.Errorf("reported again: %v", <-reports)
			}
			if err := lua.CheckLibrary(t.Context(), r.c); !errors.Is(err, lua.ErrLibraryChanged) {
				t.Errorf("the check says %v", err)
			}
		})
	}
}

// TestChangedInUse changes the library under a client that uses it: the next check reports that, and no function runs after it.
func TestChangedInUse(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, v, reports, due := functionsOf(t)
			r.configure(1)
			r.replaceLibrary(change(lua.Library()))
			due()
			_ = lua.RunAll(t.Context(), r.c, []lua.Call{r.flowsOf()}) // runs whatever is there
			if err := <-reports; !errors.Is(err, lua.ErrLibraryChanged) {
				t.Errorf("reported %v", err)
			}
			v.take()
			r.configure(2)
			if got := v.take(); strings.Contains(got, "fcall") {
				t.Errorf("sent %s", got)
			}
		})
	}
}

// TestCheckLibrary: what is not there, what was removed and what is ours is not changed.
func TestCheckLibrary(t *testing.T) {
	t.Parallel()
	r, _, reports, _ := functionsOf(t)
	check := func(when string) {
		t.Helper()
		if err := lua.CheckLibrary(t.Context(), r.c); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("before the first run")
	r.configure(1)
	check("in use")
	r.ok(r.c.FunctionLoad(t.Context(), "#!lua name=theirs\nredis.register_function('theirs', function() return 1 end)").Err())
	check("beside a library of somebody else")
	r.ok(r.c.FunctionFlush(t.Context()).Err())
	check("after FUNCTION FLUSH")
	if len(reports) != 0 {
		t.Errorf("reported %v", <-reports)
	}
}

// TestUnchecked: a user without the right to list functions uses them, and that is reported once.
func TestUnchecked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-function|list").Err(); err != nil {
		t.Fatal(err)
	}
	options := *server.Client().Options()
	options.Username, options.Password = "app", "any"
	client := redis.NewClient(&options)
	t.Cleanup(func() { client.Close() })
	v, reports := &verbs{}, make(chan error, 8)
	lua.AsFunctions(client, func(err error) { reports <- err })
	client.AddHook(v)
	r := &rig{t: t, ctx: t.Context(), c: client}
	r.configure(1)
	r.ok(client.FunctionFlush(t.Context()).Err())
	r.configure(2)
	if got := v.take(); got != "function function fcall function fcall function function fcall" {
		t.Errorf("sent %s", got)
	}
	if err := <-reports; !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("reported %v", err)
	}
	if len(reports) != 0 {
		t.Errorf("reported again: %v", <-reports)
	}
}
