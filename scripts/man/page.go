package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// page is the manual of a program in the language of man(7): the help of the program, then of each of its commands.
func page(root *cobra.Command, at time.Time) []byte {
	root.InitDefaultCompletionCmd()
	var out bytes.Buffer
	fmt.Fprintf(&out, ".TH %s 1 %s Tundish \"Tundish manual\"\n", strings.ToUpper(root.Name()), at.UTC().Format(time.DateOnly))
	fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n", root.Name(), escape(root.Short))
	fmt.Fprintf(&out, ".SH SYNOPSIS\n.B %s\n.I COMMAND\n", root.Name())
	out.WriteString(".SH DESCRIPTION\n")
	verbatim(&out, root.Long)
	out.WriteString(".SH OPTIONS\nEvery command takes \\-\\-config and \\-\\-help.\n")
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	options(&out, root.PersistentFlags())
	options(&out, root.LocalNonPersistentFlags())
	out.WriteString(".SH COMMANDS\n")
	for _, child := range root.Commands() {
		command(&out, child)
	}
	out.WriteString(".SH EXAMPLES\n")
	verbatim(&out, root.Example)
	return out.Bytes()
}

// command describes a runnable command, or the commands in a group.
func command(out *bytes.Buffer, cmd *cobra.Command) {
	if !cmd.IsAvailableCommand() {
		return
	}
	if cmd.HasAvailableSubCommands() {
		for _, child := range cmd.Commands() {
			command(out, child)
		}
		return
	}
	fmt.Fprintf(out, ".SS \"%s\"\n", escape(strings.TrimSuffix(cmd.UseLine(), " [flags]")))
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	verbatim(out, about)
	options(out, cmd.LocalNonPersistentFlags())
	if cmd.Example != "" {
		out.WriteString(".PP\nExamples:\n")
		verbatim(out, cmd.Example)
	}
}

// options lists flags, each with its value and its help.
func options(out *bytes.Buffer, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, about := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(out, ".TP\n\\fB%s\\fR", escape(name))
		if value != "" {
			fmt.Fprintf(out, " \\fI%s\\fR", escape(value))
		}
		out.WriteString("\n")
		out.WriteString(lines(about))
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			fmt.Fprintf(out, "(default %s)\n", escape(f.DefValue))
		}
	})
}

// verbatim writes a text with the lines that it has: the texts are written for a terminal.
func verbatim(out *bytes.Buffer, text string) {
	out.WriteString(".nf\n")
	out.WriteString(lines(text))
	out.WriteString(".fi\n")
}

// lines escapes each line of a text: one that begins with a dot or an apostrophe is a request to man otherwise.
func lines(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		line = escape(strings.TrimSuffix(line, "\n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

var special = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`)

func escape(text string) string { return special.Replace(text) }
