package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tundish-io/tundish/internal/cli"
)

const (
	commandsPage = "docs/cli.md"
	commandsHead = `# Commands

<!-- made by go run ./scripts/operations -->

Every command of both programs. ` + "`--help`" + ` of each has its rules and examples. [HTTP API](http-api.md#from-the-command-line) has exit codes, keys, and what asks
before it drops something. A command with ` + "`--server`" + ` calls
[its operation](http-reference.md#operators) of a server, or without the flag of its own process.

`
	sharedBy = 2 // commands that have a flag, for it to be described once
)

// commandWriter writes the page of commands.
type commandWriter struct {
	text   strings.Builder
	uses   map[string]int
	shared map[string]*pflag.Flag // of each name, the flag with the meaning that most commands give it
	seen   map[string]string      // commands of the first program, which the second one may have too
	same   []string               // of the second program
}

// commands is the page of commands.
func commands() ([]byte, error) {
	w := &commandWriter{uses: map[string]int{}, shared: map[string]*pflag.Flag{}, seen: map[string]string{}}
	roots := cli.Commands()
	shared := w.shared
	for _, root := range roots {
		walk(root, func(c *cobra.Command) {
			ownFlags(c, func(f *pflag.Flag) {
				uses, most := w.uses, shared[f.Name]
				uses[f.Name+f.Usage]++
				if uses[f.Name+f.Usage] >= sharedBy && (most == nil || uses[f.Name+f.Usage] > uses[most.Name+most.Usage]) {
					shared[f.Name] = f
				}
			})
		})
	}
	w.text.WriteString(commandsHead)
	w.text.WriteString("These flags have one meaning in several commands, which name them after \"Also\". A command lists its other flags below it. `--help` shows whether a command has `--json`.\n\n")
	w.flag(roots[0].PersistentFlags().Lookup("config"))
	names := make([]string, 0, len(shared))
	for name := range shared {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		w.flag(shared[name])
	}
	for _, root := range roots {
		fmt.Fprintf(&w.text, "\n## `%s`\n\n", root.Name())
		walk(root, w.command)
	}
	fmt.Fprintf(&w.text, "\nAs of `%s`: %s.\n", roots[0].Name(), strings.Join(w.same, ", "))
	return []byte(w.text.String()), nil
}

func (w *commandWriter) command(c *cobra.Command) {
	path := strings.SplitN(c.CommandPath(), " ", 2)[1]
	if w.seen[path] == c.Short {
		w.same = append(w.same, "`"+path+"`")
		return
	}
	w.seen[path] = c.Short
	fmt.Fprintf(&w.text, "- `%s`: %s.", strings.SplitN(strings.TrimSuffix(c.UseLine(), " [flags]"), " ", 2)[1], strings.TrimRight(c.Short, ".?"))
	var own []*pflag.Flag
	var several []string
	ownFlags(c, func(f *pflag.Flag) {
		if shared := w.shared[f.Name]; shared == nil || shared.Usage != f.Usage {
			own = append(own, f)
		} else if f.Name != "json" {
			several = append(several, "`--"+f.Name+"`")
		}
	})
	if len(several) > 0 {
		fmt.Fprintf(&w.text, " Also %s.", strings.Join(several, ", "))
	}
	w.text.WriteString("\n")
	for _, f := range own {
		w.text.WriteString("  ")
		w.flag(f)
	}
}

func (w *commandWriter) flag(f *pflag.Flag) {
	kind, usage := pflag.UnquoteUsage(f)
	name := strings.TrimSpace("--" + f.Name + " " + kind)
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(&w.text, "- `%s`: %s\n", name, strings.Join(strings.Fields(usage), " "))
}

// walk calls do for each command below root that does something.
func walk(root *cobra.Command, do func(c *cobra.Command)) {
	for _, c := range root.Commands() {
		switch {
		case c.Hidden || c.Name() == "help" || c.Name() == "completion":
		case c.HasSubCommands():
			walk(c, do)
		default:
			do(c)
		}
	}
}

func ownFlags(c *cobra.Command, do func(f *pflag.Flag)) {
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			do(f)
		}
	})
}
