package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/cli"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// result is how a command line ended.
type result struct {
	code     int
	out, err string
}

// patience is how long a test waits for a Redis of its own, whatever else the machine does. It is the most that a configuration may say.
const patience = 10 * time.Second

// command runs a command line, the first word of which is the program.
func command(ctx context.Context, env []string, stdin, words string) result {
	return runArgs(ctx, env, stdin, strings.Fields(words)...)
}

func runArgs(ctx context.Context, env []string, stdin string, args ...string) result {
	var out, err bytes.Buffer
	code := program(args[0])(ctx, args[1:], env, strings.NewReader(stdin), &out, &err)
	return result{code, out.String(), err.String()}
}

func program(name string) func(ctx context.Context, args, environ []string, in io.Reader, out, err io.Writer) int {
	if name == "producer" {
		return cli.RunProducer
	}
	return cli.RunDispatcher
}

// want fails the test unless the command ended with the code and said each
// text on stdout or stderr.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("does not say %q\nstdout: %s\nstderr: %s", text, r.out, r.err)
		}
	}
}

// writeConfig writes a configuration and returns the environment that names it.
func writeConfig(t *testing.T, toml string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	must.OK(t, os.WriteFile(path, []byte(toml), 0o600))
	return []string{"TUNDISH_CONFIG=" + path}
}

// eventually asks until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never came to be: %s", what)
		}
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"run": runInScript},
	})
}

// runInScript is `run CODE PROGRAM ARG...`: the exit code must be CODE. The
// configuration is $WORK/config.toml, if the script has one; what the script
// sets of the TUNDISH_ variables is passed on, and of the rest nothing.
func runInScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: run CODE PROGRAM ARG...")
	}
	var env []string
	if path := ts.MkAbs("config.toml"); exists(path) {
		env = append(env, "TUNDISH_CONFIG="+path)
	} else {
		env = append(env, "TUNDISH_CONFIG="+ts.MkAbs("empty.toml"))
		ts.Check(os.WriteFile(ts.MkAbs("empty.toml"), nil, 0o600))
	}
	for _, name := range append(config.Variables(), "TUNDISH_NOSUCH", "TUNDISH_KEY", "TUNDISH_KEY_FILE") {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	code := program(args[1])(context.Background(), args[2:], env, strings.NewReader(""), ts.Stdout(), ts.Stderr())
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
