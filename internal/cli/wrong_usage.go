package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tundish-io/tundish/internal/config"
)

// wrongUsage explains a fault of a command line and shows the right usage.
func wrongUsage(cmd *cobra.Command, format string, args ...any) error {
	return fail(exitUsage, "%s: %s\nusage: %s\nrun `%s --help` for examples",
		path(cmd), fmt.Sprintf(format, args...), cmd.UseLine(), cmd.CommandPath())
}

// path returns the name of a command without the name of the program, which report adds.
func path(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
}

// flagFault describes a wrong flag as our other faults do: the value, and what to use instead.
func flagFault(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok && wrong.GetFlag().Value.Type() == "duration" {
		return wrongUsage(cmd, "--%s %q: want a duration, such as 90s or 2h30m", wrong.GetFlag().Name, wrong.GetValue())
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				names = append(names, "--"+flag.Name)
			}
		})
		return wrongUsage(cmd, "%v%s", err, config.DidYouMean("--"+unknown.GetSpecifiedName(), names))
	}
	return wrongUsage(cmd, "%v", err)
}
