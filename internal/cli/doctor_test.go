package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// examined runs the doctor on a Redis and returns its findings by name.
func examined(t *testing.T, url string) (found map[string]string, code int, text string) {
	t.Helper()
	env := writeConfig(t, fmt.Sprintf("[redis]\nurl = %q\ntimeout = \"10s\"\n[[buckets]]\nname = \"webhooks\"\nrate = \"50/s\"\n", url))
	r := command(t.Context(), env, "", "dispatcher doctor --json")
	var view struct {
		Checks []struct{ Name, Status string }
	}
	if err := json.Unmarshal([]byte(r.out), &view); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	found = map[string]string{}
	for _, c := range view.Checks {
		found[c.Name] = c.Status
	}
	return found, r.code, r.out
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		want map[string]string // what is not ok
	}{
		"all is well": {
			[]string{"--appendonly", "yes", "--maxmemory", "100mb"}, 0, nil,
		},
		"memory only": {
			[]string{"--maxmemory", "100mb"}, 1, map[string]string{"persistence": "fail"},
		},
		"a full Redis deletes jobs": {
			[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, 1, map[string]string{"eviction": "fail"},
		},
		"no bound, no fsync": {
			[]string{"--appendonly", "yes", "--appendfsync", "no"}, 0, map[string]string{"memory": "warn", "persistence": "warn"},
		},
		"nearly full": {
			[]string{"--appendonly", "yes", "--maxmemory", "1mb"}, 0, map[string]string{"memory": "warn"},
		},
		"CONFIG is forbidden": {
			[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--rename-command", "CONFIG", ""}, 0, nil,
		},
		"INFO is forbidden": {
			[]string{"--rename-command", "INFO", "", "--rename-command", "CONFIG", ""}, 0, map[string]string{
				"version": "warn", "mode": "warn", "persistence": "warn", "eviction": "warn", "memory": "warn", "replicas": "warn",
			},
		},
		"functions are forbidden": {
			[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--rename-command", "FUNCTION", ""}, 0, nil,
		},
		"scripts are forbidden": {
			[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--rename-command", "FUNCTION", "", "--rename-command", "EVAL", ""}, 1,
			map[string]string{"scripts": "fail", "buckets": "fail"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, code, text := examined(t, redistest.Start(t, test.args...).URL())
			must.Equal(t, code, test.code, "exit code")
			for name, status := range found {
				want := test.want[name]
				if want == "" {
					want = "ok"
				}
				if name != "latency" && status != want { // that is the machine's
					t.Errorf("%s is %s, want %s", name, status, want)
				}
				delete(test.want, name)
			}
			if len(test.want) > 0 || t.Failed() {
				t.Errorf("not found: %v\n%s", test.want, text)
			}
		})
	}
}

func TestDoctorOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	found, code, text := examined(t, "redis://"+redistest.Miniredis(t).Addr())
	if code != 0 || found["version"] != "warn" || found["scripts"] != "ok" || found["bucket webhooks"] != "ok" {
		t.Errorf("exit code %d, found %v\n%s", code, found, text)
	}
}

func TestDoctorOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "--appendonly", "yes", "--maxmemory", "100mb", "--min-replicas-to-write", "1")
	found, code, text := examined(t, c.URL())
	for _, name := range []string{"cluster", "version", "mode", "persistence", "eviction", "memory", "replicas", "scripts", "bucket webhooks"} {
		must.Equal(t, found[name], "ok", "%s is", name)
	}
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, text)
	}
	// One of three masters is not as the others are.
	master := c.MasterOf(t, "webhooks")
	must.OK(t, master.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	found, code, text = examined(t, c.URL())
	if found["eviction"] != "fail" || code != 1 || !strings.Contains(text, master.Addr()+": maxmemory-policy is allkeys-lru") {
		t.Errorf("exit code %d\n%s", code, text)
	}
	// And what a node says to those who take it for a server of its own.
	if found, code, text = examined(t, master.URL()); found["mode"] != "fail" || code != 1 {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

func TestDoctorOfSentinels(t *testing.T) {
	t.Parallel()
	trio := redistest.StartSentinel(t, "--appendonly", "yes", "--maxmemory", "100mb", "--min-replicas-to-write", "1")
	found, code, text := examined(t, trio.URL())
	if code != 0 || found["mode"] != "ok" || found["replicas"] != "ok" || found["bucket webhooks"] != "ok" {
		t.Errorf("exit code %d\n%s", code, text)
	}
	_, code, text = examined(t, trio.URL()+"2")
	if code != 1 || !strings.Contains(text, "know no master of this name") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// The library of functions: another user has changed it, or may do so without our notice, or it is not used.
func TestDoctorOfFunctions(t *testing.T) {
	t.Parallel()
	const more = "[redis]\nfunctions = %t\nurl = %q\n[[buckets]]\nname = \"webhooks\"\nrate = \"50/s\"\n"
	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb")
	for _, step := range []struct {
		functions bool
		library   string
		code      int
		want      string
	}{
		{false, "", 0, "run, not as functions, which would cost this Redis less (redis.functions is false)"},
		{true, "", 0, "run as functions of Redis"},
		{true, lua.Library() + "-- and more", 1, "another client of this Redis has changed the library of functions"},
		{false, lua.Library() + "-- and more", 0, "run, not as functions"},
	} {
		must.OK(t, server.Client().FunctionFlush(t.Context()).Err())
		if step.library != "" {
			must.OK(t, server.Client().FunctionLoad(t.Context(), step.library).Err())
		}
		command(t.Context(), writeConfig(t, fmt.Sprintf(more, step.functions, server.URL())), "", "dispatcher doctor").want(t, step.code, step.want)
		if there := server.Client().FunctionList(t.Context(), redis.FunctionListQuery{}).Val(); !step.functions && step.library == "" && len(there) != 0 {
			t.Errorf("redis.functions is false, and Redis has %d libraries", len(there))
		}
	}
}

// A right that the user lacks is found before it is missed, and named.
func TestDoctorNamesMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb")
	url := "redis://less:secret@" + server.Addr()
	must.OK(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "less", "on", ">secret", "~*", "&*", "+@all", "-publish", "-zrange").Err())
	if found, code, text := examined(t, url); code != 1 || found["rights"] != "fail" || !strings.Contains(text, "may not use zrange, publish on keys") || !strings.Contains(text, "+zrange +publish") {
		t.Errorf("exit code %d, rights are %q\n%s", code, found["rights"], text)
	}
	must.OK(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "less", "resetchannels", "+@all").Err())
	if found, _, text := examined(t, url); found["rights"] != "fail" || !strings.Contains(text, "may not use publish, subscribe on keys") {
		t.Errorf("without channels rights are %q\n%s", found["rights"], text)
	}
}

// What a full Redis deletes depends on its policy, and a server without CONFIG gets no advice to use it.
func TestDoctorOnEviction(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"allkeys-lru": "deletes jobs", "volatile-lru": "keeps jobs, and deletes what expires: the counts of limits, quotas and budgets"} {
		_, _, text := examined(t, redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", policy, "--rename-command", "CONFIG", "").URL())
		if !strings.Contains(text, want) || strings.Contains(text, "CONFIG SET") || !strings.Contains(text, "set appendonly yes where the settings of this Redis are") {
			t.Errorf("%s: want %q, and no CONFIG SET:\n%s", policy, want, text)
		}
	}
}
