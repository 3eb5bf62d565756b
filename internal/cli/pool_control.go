package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// onPool makes the RunE of a command that changes the pool NAME. The command prints the text that do returns, or as JSON the pool
// after the change.
func (a *app) onPool(do func(ctx context.Context, p operator.PoolControl, pool string) (said string, err error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
			said, err := do(ctx, s.operator.As(author()).Pool(args[0]), args[0])
			if _, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
				return fail(exitUsage, "%w", err)
			}
			if err != nil {
				return err
			}
			if !a.json {
				return a.print(nil, func(w io.Writer) { fmt.Fprintln(w, said) })
			}
			views, err := s.poolViews(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(views[0], nil)
		})
	}
}

// poolFlags are the flags of `pool set`, with their help.
var poolFlags = []settingFlag{
	{shaper.SettingRate, "departures of all its buckets together, such as `20/s` or 500/m"},
	{shaper.SettingBurst, "`number` of departures that may leave at once after a quiet time"},
	{shaper.SettingMaxInFlight, "`number` of jobs in flight at most, in all its buckets; 0: their own bounds only"},
}

func (a *app) poolSetCommand() *cobra.Command {
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		patch, err := settingsOf(cmd, poolFlags)
		if err != nil {
			return err
		}
		return a.onPool(func(ctx context.Context, p operator.PoolControl, _ string) (string, error) {
			changes, err := p.Set(ctx, patch)
			return changesText(changes), err
		})(cmd, args)
	}
	a.jsonFlag(cmd)
	addSettings(cmd, poolFlags)
	return cmd
}

func (a *app) poolReleaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "End a hold or an open circuit breaker of a pool",
		Long: `End a hold or an open circuit breaker of a pool, and forget its adaptive rate. The waiting
jobs of its buckets go on at once, at the pool's pace. The receiver's next answers may slow
or hold the pool again. To release a pool that is not held is harmless.`,
		Example: `  dispatcher pool release vendor`,
		Args:    positional("NAME"),
	}
	cmd.RunE = a.onPool(func(ctx context.Context, p operator.PoolControl, pool string) (string, error) {
		was, err := p.Release(ctx)
		return releasedText(was, pool), err
	})
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) poolResetCommand() *cobra.Command {
	names := make([]string, 0, len(poolFlags))
	for _, f := range poolFlags {
		names = append(names, string(f.setting))
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		settings := make([]shaper.Setting, 0, len(args)-1)
		for _, name := range args[1:] {
			settings = append(settings, shaper.Setting(name))
		}
		return a.onPool(func(ctx context.Context, p operator.PoolControl, _ string) (string, error) {
			changes, err := p.Reset(ctx, settings...)
			return changesText(changes), err
		})(cmd, args)
	}
	a.jsonFlag(cmd)
	return cmd
}
