// Package npmtest runs programs of Node for tests, with packages of npm that others wrote: clients of APIs, parsers of headers, verifiers of
// signatures.
package npmtest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program is Node, and a folder whose node_modules its scripts import.
type Program struct{ node, folder string }

// Clients is a Program with the packages of scripts/npm.
func Clients(t testing.TB) Program {
	t.Helper()
	return At(t, filepath.Join(".tools", "npm"))
}

// At returns a Program with the packages that scripts/parsers installs in a folder of the repository. These tests take long and need packages from the
// net. So they run only in CI, and where the environment has CLIENTS: then they fail without the packages.
func At(t testing.TB, folder string) Program {
	t.Helper()
	if os.Getenv("CI") == "" && os.Getenv("CLIENTS") == "" {
		t.Skip("CI runs this test, which needs Node and packages of npm; so does CLIENTS=1 make test")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("npmtest: this test needs Node: ", err)
	}
	p := Program{node, filepath.Join(rootOf(t), folder)}
	if _, err := os.Stat(filepath.Join(p.folder, "node_modules")); err != nil {
		t.Fatalf("npmtest: the packages are not installed, scripts/parsers installs them: %v", err)
	}
	return p
}

// Command is a run of Node in the folder, with env in its environment.
func (p Program) Command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.node, args...) //nolint:gosec // the program is Node
	cmd.Dir, cmd.Env = p.folder, append(os.Environ(), env...)
	return cmd
}

// Script is a run of a module that is read from script.
func (p Program) Script(t testing.TB, script io.Reader, env ...string) *exec.Cmd {
	t.Helper()
	cmd := p.Command(t, env, "--input-type=module", "-")
	cmd.Stdin = script
	return cmd
}

// Output returns the output of a file with a module. The test fails if it ends with an error.
func (p Program) Output(t testing.TB, file string, env ...string) []byte {
	t.Helper()
	script, err := os.ReadFile(file) //nolint:gosec // a test names it
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.Script(t, bytes.NewReader(script), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", file, err, said.String())
	}
	return out
}

// rootOf returns the root folder of the repository that holds the test.
func rootOf(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for folder := at; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
	}
	t.Fatalf("npmtest: no folder above %s has a go.mod", at)
	return ""
}
