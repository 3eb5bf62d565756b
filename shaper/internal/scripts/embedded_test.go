package scripts_test

import (
	"cmp"
	"crypto/sha1"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// embedded says that this run is of `make embedded`: all tests on a miniredis, which is the embedded store, and none on a real server.
var embedded = os.Getenv("EMBEDDED") != ""

// step is a command with its options that a script ran on a miniredis. What the embedded store can do differently, it does in a step.
type step struct{ script, command string }

// ran has the steps of some tests, and a test that ran each.
type ran struct {
	mu sync.Mutex
	by map[step]string
}

// ranOnBoth are the steps that also `make test` runs, ranInCI the others.
var ranOnBoth, ranInCI = ran{by: map[step]string{}}, ran{by: map[step]string{}}

// observe notes the steps of the scripts that a miniredis runs.
func observe(t *testing.T, mini *miniredis.Miniredis, to *ran) {
	t.Helper()
	if !embedded {
		return
	}
	script := ""
	mini.Server().SetPreHook(func(_ *server.Peer, command string, args ...string) bool {
		to.mu.Lock()
		defer to.mu.Unlock()
		switch command {
		case "EVAL":
			script, command, args = fmt.Sprintf("%x", sha1.Sum([]byte(args[0]))), "", nil
		case "EVALSHA":
			script, command, args = args[0], "", nil
		}
		if script != "" {
			step := step{script, command + options(args)}
			to.by[step] = cmp.Or(to.by[step], t.Name())
		}
		return false
	})
}

// options are those words among the arguments of a command that are no data: " LIMIT", " NX".
func options(args []string) (words string) {
	for _, arg := range args {
		if len(arg) > 1 && len(arg) < 12 && strings.Trim(arg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			words += " " + arg
		}
	}
	return words
}

// conforming is a run of all tests that fails where those that use onBoth leave out a script, or a command of any script.
type conforming struct{ tests interface{ Run() int } }

func (c conforming) Run() int {
	code := c.tests.Run()
	if !embedded || flag.Lookup("test.run").Value.String() != "" {
		return code
	}
	scripts, commands := map[string]bool{}, map[string]bool{}
	for step := range ranOnBoth.by {
		scripts[step.script], commands[step.command] = true, true
	}
	for step, test := range ranInCI.by {
		if scripts[step.script] && commands[step.command] {
			continue
		}
		fmt.Printf("no test that uses onBoth runs %q of the script %.8s, %s does: let that one use it\n", step.command, step.script, test)
		scripts[step.script], commands[step.command] = true, true
		code = 1
	}
	return code
}
