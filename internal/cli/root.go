package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/build"
	"github.com/tundish-io/tundish/internal/config"
)

// invocation is one run of a program: its environment and streams, and the flags that many
// commands have.
type invocation struct {
	program string
	env     []string
	in      io.Reader
	out     io.Writer
	err     io.Writer

	configPath string
	json       bool
	serverURL  string // --server of an operator's command; "" uses Redis directly
	key        string // --key
}

// run executes a command line and returns the exit code.
func (a *invocation) run(ctx context.Context, root *cobra.Command, args []string) int {
	logging.Disable() // of go-redis: it also returns everything that it would print
	a.prepare(root)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return report(a.err, a.program, root.ExecuteContext(ctx))
}

// prepare adds what all commands of a program share to the root command.
func (a *invocation) prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = build.Of(a.program).String()
	root.SetUsageTemplate(usage)
	root.SetHelpCommand(helpCommand())
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(flagFault)
	root.PersistentFlags().StringVar(&a.configPath, "config", "",
		"`file` to read (default: the file in TUNDISH_CONFIG, else ./config.toml if it exists)")
}

// load reads the configuration that the flags and the environment name.
func (a *invocation) load() (*config.Config, error) {
	return config.Load(a.options())
}

// addresses reads the configuration for the addresses of the programs: its secrets may be with these alone.
func (a *invocation) addresses() (*config.Config, error) {
	o := a.options()
	o.SecretsElsewhere = true
	return config.Load(o)
}

func (a *invocation) options() config.Options { return config.Options{Path: a.configPath, Env: a.env} }

// jsonFlag adds --json to a command that prints data.
func (a *invocation) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// usage is the end of every help, as cobra's templates want it.
const usage = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Run "{{.CommandPath}} COMMAND --help" for its examples and flags.{{end}}
`

// examples returns the examples of a command that both programs have, for this program.
func (a *invocation) examples(text string) string {
	return strings.NewReplacer("  producer ", "  "+a.program+" ", "  dispatcher ", "  "+a.program+" ").Replace(text)
}

const exitCodes = `Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 refused by
admission (try again later), 4 not found, 5 Redis or server unreachable.`

// group makes a command that only has commands. Called without one of them it
// shows its help and is wrong usage.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.FParseErrWhitelist.UnknownFlags = true // flags of the mistyped command
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s\n\n%s\n", cmd.Long, cmd.UsageString())
			return fail(exitUsage, "say which command")
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %q?", strings.TrimSpace(path(cmd)+" "+near[0]))
		}
		return fail(exitUsage, "there is no command %q%s\nrun `%s --help` for the list",
			strings.TrimSpace(path(cmd)+" "+args[0]), hint, cmd.CommandPath())
	}
	return cmd
}

// helpCommand is `program help COMMAND`, with completion of commands.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Show the help of a command",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && found.HasAvailableSubCommands() {
				return errors.Join(err, found.RunE(found, rest))
			}
			return found.Help()
		},
	}
}

// positional requires as many arguments as there are names; the last one may be missing if it is in brackets, and repeated if it ends in dots.
func positional(names ...string) cobra.PositionalArgs {
	least, most := len(names), len(names)
	if len(names) > 0 {
		last := names[len(names)-1]
		if strings.HasPrefix(last, "[") {
			least--
		}
		if strings.Contains(last, "...") {
			most = 1 << 30
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return wrongUsage(cmd, "%s is missing", strings.TrimSuffix(names[len(args)], "..."))
		case len(args) > most:
			return wrongUsage(cmd, "%q is one argument too many", args[most])
		}
		return nil
	}
}
