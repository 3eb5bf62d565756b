package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tundish-io/tundish/internal/config"
)

// flagFault says what is wrong with a flag as our other faults do: what was given, and what to give.
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
