package tundish_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A module that imports the library loads little besides it: what every one of its builds, and its go mod tidy, has to look at. It is a module outside of
// this one, with a replace, and asks no network.
func TestWhatAnotherModuleLoads(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/tundish-io/tundish"
	outside := t.TempDir()
	module := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(ours), "module example.com/outside\n\nrequire "+path+" v0.0.0\n\nreplace "+path+" => "+here)
	for name, text := range map[string]string{"go.mod": module, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(outside, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pkg, most := range map[string]struct{ packages, modules int }{ // of others; a little above what it is
		path:                    {90, 23},
		path + "/workers/asynq": {100, 25},
	} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", pkg)
		list.Dir, list.Env = outside, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		out, err := list.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		packages, modules := 0, map[string]bool{}
		for _, of := range strings.Fields(string(out)) {
			if of != path {
				packages++
				modules[of] = true
			}
		}
		if packages > most.packages || len(modules) > most.modules {
			t.Errorf("%s loads %d packages of %d other modules, want at most %d of %d: %v", pkg, packages, len(modules), most.packages, most.modules, modules)
		}
	}
}
