package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// onBucket makes the RunE of a command that changes the bucket NAME. The command prints
// the text that do returns, or as JSON the bucket after the change.
func (a *app) onBucket(do func(ctx context.Context, b operator.BucketControl, bucket string) (said string, err error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
			said, err := do(ctx, s.operator.As(author()).Bucket(args[0]), args[0])
			if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
				return fail(exitUsage, "%w", bad)
			}
			if err != nil {
				return err
			}
			if !a.json {
				return a.print(nil, func(w io.Writer) { fmt.Fprintln(w, said) })
			}
			views, err := s.bucketViews(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(views[0], nil)
		})
	}
}

// author names the user of this program as the author of a change.
func author() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "user " + u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

func (a *app) bucketPauseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Stop departures from a bucket",
		Long: `Stop departures from a bucket, in all processes, at once and across restarts,
until it is resumed. Jobs that have a slot already still leave, within 200 ms. Jobs in
flight end as usual. New jobs are accepted until the bucket is full. To pause a bucket
twice is harmless.`,
		Example: `  dispatcher bucket pause webhooks --reason "the receiver is down until 3 pm"
  dispatcher bucket resume webhooks`,
		Args: positional("NAME"),
	}
	cmd.RunE = a.onBucket(func(ctx context.Context, b operator.BucketControl, bucket string) (string, error) {
		return "paused: " + bucket, b.Pause(ctx, reason)
	})
	a.jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why the bucket is paused: a `text` of at most 500 bytes")
	return cmd
}

func (a *app) bucketResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Let a paused bucket run again",
		Long: `Let a paused bucket run again, at its pace: the jobs that waited do not leave in a
burst. To resume a bucket that is not paused is harmless.`,
		Example: `  dispatcher bucket resume webhooks`,
		Args:    positional("NAME"),
	}
	cmd.RunE = a.onBucket(func(ctx context.Context, b operator.BucketControl, bucket string) (string, error) {
		was, err := b.Resume(ctx)
		if !was {
			return "was not paused: " + bucket, err
		}
		return "resumed: " + bucket, err
	})
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) bucketReleaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "End a hold or an open circuit breaker of a bucket",
		Long: `End a hold or an open circuit breaker of a bucket, and forget its adaptive rate. Waiting
jobs go on at once, at the bucket's pace. The receiver's next answers may slow or hold
the bucket again. The flows of a bucket have holds of their own: see ` + "`flow release`" + `. To
release a bucket that is not held is harmless.`,
		Example: `  dispatcher bucket release webhooks`,
		Args:    positional("NAME"),
	}
	cmd.RunE = a.onBucket(func(ctx context.Context, b operator.BucketControl, bucket string) (string, error) {
		was, err := b.Release(ctx)
		return releasedText(was, bucket), err
	})
	a.jsonFlag(cmd)
	return cmd
}

func releasedText(was bool, name string) string {
	if !was {
		return "had nothing to release: " + name
	}
	return "released: " + name
}

// settingFlag is a flag that changes a setting, with its help.
type settingFlag struct {
	setting shaper.Setting
	usage   string
}

// settingFlags are the flags of `bucket set`.
var settingFlags = []settingFlag{
	{shaper.SettingRate, "departures, such as `20/s` or 500/m"},
	{shaper.SettingBurst, "`number` of departures that may leave at once after a quiet time"},
	{shaper.SettingCapacity, "`number` of unfinished jobs at most"},
	{shaper.SettingScheduledCapacity, "`number` of jobs for later at most"},
	{shaper.SettingMaxInFlight, "`number` of jobs in flight at most, over all dispatchers"},
	{shaper.SettingShedLow, "`percent` of the capacity at which jobs of priority low are refused"},
	{shaper.SettingShedNormal, "the same `percent` for priority normal"},
	{shaper.SettingShedHigh, "the same `percent` for priority high"},
}

func flagOf(setting shaper.Setting) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(string(setting))
}

func (a *app) bucketSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME --SETTING VALUE...",
		Short: "Change settings of a bucket while it runs",
		Long: `Change settings of a bucket, in all processes, at once and across restarts. The
change overrides all configurations until it is reset. A new rate holds from the next
slot on. A rate of 0 is refused: pause the bucket instead, with a reason.
` + "`bucket list --diff`" + ` shows each change, its author and its time.`,
		Example: `  dispatcher bucket set webhooks --rate 20/s
  dispatcher bucket set webhooks --capacity 50000 --max-in-flight 64
  dispatcher bucket reset webhooks`,
		Args: positional("NAME"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		patch, err := settingsOf(cmd, settingFlags)
		if err != nil {
			return err
		}
		return a.onBucket(func(ctx context.Context, b operator.BucketControl, bucket string) (string, error) {
			changes, err := b.Set(ctx, patch)
			return changesText(changes), err
		})(cmd, args)
	}
	a.jsonFlag(cmd)
	addSettings(cmd, settingFlags)
	return cmd
}

// addSettings gives a command flags that take settings.
func addSettings(cmd *cobra.Command, flags []settingFlag) {
	cmd.Flags().SortFlags = false
	for _, f := range flags {
		cmd.Flags().String(flagOf(f.setting), "", f.usage)
	}
}

// settingsOf makes a patch of the flags that are given.
func settingsOf(cmd *cobra.Command, flags []settingFlag) (patch operator.BucketPatch, err error) {
	for _, f := range flags {
		if flag := cmd.Flags().Lookup(flagOf(f.setting)); flag.Changed {
			if err := patch.Put(f.setting, flag.Value.String()); err != nil {
				return patch, wrongUsage(cmd, "--%s: %v", flagOf(f.setting), strings.TrimPrefix(err.Error(), string(f.setting)+": "))
			}
		}
	}
	if patch.IsZero() {
		return patch, wrongUsage(cmd, "nothing is changed: give --rate or another setting")
	}
	return patch, nil
}

func (a *app) bucketResetCommand() *cobra.Command {
	names := make([]string, 0, len(settingFlags))
	for _, f := range settingFlags {
		names = append(names, string(f.setting))
	}
	cmd := &cobra.Command{
		Use:   "reset NAME [SETTING...]",
		Short: "Return to the configured settings",
		Long: `Remove the changes of ` + "`bucket set`" + `, so that the configuration is in force again: for
the named settings, or for all. They are ` + strings.Join(names[:4], ", ") + `,
` + strings.Join(names[4:], ", ") + `. To reset a setting that was not changed is harmless.`,
		Example: `  dispatcher bucket reset webhooks rate
  dispatcher bucket reset webhooks`,
		Args: positional("NAME", "[SETTING...]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		settings := make([]shaper.Setting, 0, len(args)-1)
		for _, name := range args[1:] {
			settings = append(settings, shaper.Setting(name))
		}
		return a.onBucket(func(ctx context.Context, b operator.BucketControl, bucket string) (string, error) {
			changes, err := b.Reset(ctx, settings...)
			return changesText(changes), err
		})(cmd, args)
	}
	a.jsonFlag(cmd)
	return cmd
}

func changesText(changes []shaper.Change) string {
	if len(changes) == 0 {
		return "nothing is changed: it is as configured"
	}
	lines := make([]string, len(changes))
	for i, change := range changes {
		lines[i] = change.String()
	}
	return strings.Join(lines, "\n")
}

// pauseText says a pause in one line, safe to show.
func pauseText(p *opsview.Pause, now time.Time) string {
	text := fmt.Sprintf("paused %s by %s", relative(p.Since, now), p.By)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return line(text, 200)
}
