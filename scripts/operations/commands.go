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
before it drops something. A command that has ` + "`--server`" + ` is a client of [this operation](http-reference.md#operators) of the API: of a server, or without the flag of its own process.

`
	sharedBy = 4 // commands that have a flag, for it to be described once
)

// commandWriter writes the page of commands.
type commandWriter struct {
	text strings.Builder
	uses map[string]int
	seen map[string]string // commands of the first program, which the second one may have too
}

// commands is the page of commands.
func commands() ([]byte, error) {
	w := &commandWriter{uses: map[string]int{}, seen: map[string]string{}}
	roots := cli.Commands()
	shared := map[string]*pflag.Flag{}
	for _, root := range roots {
		walk(root, func(c *cobra.Command) {
			ownFlags(c, func(f *pflag.Flag) {
				key := f.Name + f.Usage
				if w.uses[key]++; w.uses[key] == sharedBy {
					shared[f.Name] = f
				}
			})
		})
	}
	w.text.WriteString(commandsHead)
	w.text.WriteString("Flags of several commands:\n\n| flag | meaning |\n|---|---|\n")
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
		fmt.Fprintf(&w.text, "\n## `%s`\n", root.Name())
		walk(root, w.command)
	}
	return []byte(w.text.String()), nil
}

func (w *commandWriter) command(c *cobra.Command) {
	path := strings.SplitN(c.CommandPath(), " ", 2)[1]
	if first := w.seen[path]; first == c.Short {
		fmt.Fprintf(&w.text, "\n### `%s`\n\nThe same as `dispatcher %s`.\n", c.UseLine(), path)
		return
	}
	w.seen[path] = c.Short
	fmt.Fprintf(&w.text, "\n### `%s`\n\n%s.", strings.TrimSuffix(c.UseLine(), " [flags]"), strings.TrimSuffix(c.Short, "."))
	var own []*pflag.Flag
	var several []string
	ownFlags(c, func(f *pflag.Flag) {
		if w.uses[f.Name+f.Usage] < sharedBy {
			own = append(own, f)
		} else if f.Name != "json" {
			several = append(several, "`--"+f.Name+"`")
		}
	})
	if len(several) > 0 {
		fmt.Fprintf(&w.text, " Also %s.", strings.Join(several, ", "))
	}
	w.text.WriteString("\n")
	if len(own) > 0 {
		w.text.WriteString("\n| flag | meaning |\n|---|---|\n")
	}
	for _, f := range own {
		w.flag(f)
	}
}

func (w *commandWriter) flag(f *pflag.Flag) {
	kind, usage := pflag.UnquoteUsage(f)
	name := strings.TrimSpace("--" + f.Name + " " + kind)
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(&w.text, "| `%s` | %s |\n", name, cell(strings.Join(strings.Fields(usage), " ")))
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
