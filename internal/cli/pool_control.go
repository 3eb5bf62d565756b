package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) poolSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME --SETTING VALUE...",
		Short: "Change settings of a pool while it runs",
		Long: `Change settings of a pool, in all processes, at once and across restarts. The change
overrides all configurations until it is reset. A new rate holds from the next slot on.
` + "`bucket list --diff`" + ` and ` + "`pool show`" + ` show each change, its author and its time.`,
		Example: `  dispatcher pool set vendor --rate 20/s
  dispatcher pool set vendor --burst 5 --max-in-flight 64
  dispatcher pool reset vendor`,
		Args: positional("NAME"),
	}
	cmd.RunE = on(a, "pool", httpapi.SetPool, func(cmd *cobra.Command, args []string) (httpapi.PoolSettings, error) {
		settings, err := settingsOf(cmd, poolFlags)
		return httpapi.PoolSettings{PoolName: thePool(args), Settings: settings}, err
	}, func(v *opsview.PoolView) string { return a.changedText(v.Changes, "pool", v.Name) })
	a.jsonFlag(cmd)
	addSettings(cmd, poolFlags)
	return cmd
}

func (a *invocation) poolReleaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "End a hold or an open circuit breaker of a pool",
		Long: `End a hold or an open circuit breaker of a pool, and forget its adaptive rate. The waiting
jobs of its buckets go on at once, at the pool's pace. The receiver's next answers may slow
or hold the pool again. To release a pool that is not held is harmless.`,
		Example: `  dispatcher pool release vendor`,
		Args:    positional("NAME"),
	}
	cmd.RunE = on(a, "pool", httpapi.ReleasePool, asking(thePool), func(v *opsview.PoolView) string { return releasedText(v.Outcome, v.Name) })
	a.jsonFlag(cmd)
	return cmd
}

func (a *invocation) poolResetCommand() *cobra.Command {
	names := make([]string, 0, len(poolFlags))
	for _, f := range poolFlags {
		names = append(names, f.Path)
	}
	cmd := &cobra.Command{
		Use:   "reset NAME [SETTING...]",
		Short: "Return to the configured settings",
		Long: `Remove the changes of ` + "`pool set`" + `, so that the configuration is in force again: for the
named settings, or for all. They are ` + strings.Join(names, ", ") + `.
To reset a setting that was not changed is harmless.`,
		Example: `  dispatcher pool reset vendor rate
  dispatcher pool reset vendor`,
		Args: positional("NAME", "[SETTING...]"),
	}
	cmd.RunE = on(a, "pool", httpapi.ResetPool, asking(func(args []string) httpapi.PoolResets {
		return httpapi.PoolResets{PoolName: thePool(args), Settings: args[1:]}
	}), func(v *opsview.PoolView) string { return resetText(v.Changes) })
	a.jsonFlag(cmd)
	return cmd
}
