package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// theBucket and thePool return the input of operations that need only the name.
func theBucket(args []string) httpapi.BucketName { return httpapi.BucketName{Bucket: args[0]} }
func thePool(args []string) httpapi.PoolName     { return httpapi.PoolName{Pool: args[0]} }

func (a *invocation) bucketPauseCommand() *cobra.Command {
	var reason string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "pause NAME",
		Short: "Stop departures from a bucket",
		Long: `Stop departures from a bucket, in all processes, at once and across restarts,
until it is resumed. Jobs that have a slot already still leave, within 200 ms. Jobs in
flight end as usual. New jobs are accepted until the bucket is full. To pause a bucket
twice is harmless.`,
		Example: `  dispatcher bucket pause webhooks --reason "the receiver is down until 3 pm"
  dispatcher bucket resume webhooks`,
		Args: positional("NAME"),
		RunE: on(a, "bucket", httpapi.PauseBucket, asking(func(args []string) httpapi.BucketPause {
			return httpapi.BucketPause{BucketName: theBucket(args), PauseReason: httpapi.PauseReason{Reason: reason}}
		}), func(v *opsview.Bucket) string { return "paused: " + v.Name }),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why the bucket is paused: a `text` of at most 500 bytes")
	return cmd
}

func (a *invocation) bucketResumeCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "resume NAME",
		Short: "Let a paused bucket run again",
		Long: `Let a paused bucket run again, at its pace: the jobs that waited do not leave in a
burst. To resume a bucket that is not paused is harmless.`,
		Example: `  dispatcher bucket resume webhooks`,
		Args:    positional("NAME"),
		RunE:    on(a, "bucket", httpapi.ResumeBucket, asking(theBucket), func(v *opsview.Bucket) string { return resumedText(v.Outcome, v.Name) }),
	})
}

func (a *invocation) bucketReleaseCommand() *cobra.Command {
	var all bool
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "release NAME",
		Short: "End a hold or an open circuit breaker of a bucket",
		Long: `End a hold or an open circuit breaker of a bucket, and forget its adaptive rate. Waiting
jobs go on at once, at the bucket's pace. The receiver's next answers may slow or hold
the bucket again. The flows of a bucket have holds and breakers of their own: release all
of them with --all-flows, or one with ` + "`flow release`" + `. Disabled flows stay disabled: see
` + "`flow enable`" + `. To release a bucket that is not held is harmless.`,
		Example: `  dispatcher bucket release webhooks
  dispatcher bucket release webhooks --all-flows`,
		Args: positional("NAME"),
		RunE: on(a, "bucket", httpapi.ReleaseBucket, asking(func(args []string) httpapi.BucketRelease {
			return httpapi.BucketRelease{BucketName: theBucket(args), AllFlows: all}
		}), bucketReleasedText),
	})
	cmd.Flags().BoolVar(&all, "all-flows", false, "release its flows too")
	return cmd
}

// bucketReleasedText returns the result of a release of a bucket, or of all its flows too.
func bucketReleasedText(v *opsview.Bucket) string {
	text := releasedText(v.Outcome, v.Name)
	switch {
	case v.FlowsReleased == nil && !deref(v.Changed) && v.Flows != nil:
		text += ". Its flows have holds and breakers of their own: --all-flows releases them"
	case v.More:
		text += fmt.Sprintf(" (%s so far). The time was up: run the command again for the others", opsview.Count(*v.FlowsReleased, "flow"))
	case deref(v.FlowsReleased) > 0:
		text += fmt.Sprintf(" (%s)", opsview.Count(*v.FlowsReleased, "flow"))
	}
	return text
}

func resumedText(o opsview.Outcome, name string) string {
	if !deref(o.Changed) {
		return "was not paused: " + name
	}
	return "resumed: " + name
}

func releasedText(o opsview.Outcome, name string) string {
	if !deref(o.Changed) {
		return "had nothing to release: " + name
	}
	return "released: " + name
}

// settingFlags are the flags of `bucket set`, and poolFlags the flags of `pool set`: the settings whose tags say that an operator may change them.
var (
	settingFlags = setting.Changes(reflect.TypeFor[shaper.Bucket]())
	poolFlags    = setting.Changes(reflect.TypeFor[shaper.Pool]())
)

func flagOf(path string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(path)
}

func (a *invocation) bucketSetCommand() *cobra.Command {
	cmd := a.jsonFlag(&cobra.Command{
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
		RunE: on(a, "bucket", httpapi.SetBucket, func(cmd *cobra.Command, args []string) (httpapi.BucketSettings, error) {
			settings, err := settingsOf(cmd, settingFlags)
			return httpapi.BucketSettings{BucketName: theBucket(args), Settings: settings}, err
		}, func(v *opsview.Bucket) string { return a.changedText(v.Changes, "bucket", v.Name) }),
	})
	addSettings(cmd, settingFlags)
	return cmd
}

// addSettings adds flags for settings to a command.
func addSettings(cmd *cobra.Command, flags []*setting.Key) {
	cmd.Flags().SortFlags = false
	for _, f := range flags {
		cmd.Flags().String(flagOf(f.Path), "", strings.Replace(f.Help, "'", "`", 2))
	}
}

// settingsOf returns a patch from the flags that are set.
func settingsOf(cmd *cobra.Command, flags []*setting.Key) (json.RawMessage, error) {
	var patch operator.BucketPatch // to check them
	body, err := given(cmd, flags, func(path, text string) error { return patch.Put(shaper.Setting(path), text) })
	if err == nil && patch.IsZero() {
		err = errNoSetting(cmd)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(body)
}

func errNoSetting(cmd *cobra.Command) error {
	return wrongUsage(cmd, "nothing is changed: give --rate or another setting")
}

// given returns the body of a change from the flags that are set, each checked by check.
func given(cmd *cobra.Command, flags []*setting.Key, check func(path, text string) error) (map[string]any, error) {
	body := map[string]any{}
	for _, f := range flags {
		flag := cmd.Flags().Lookup(flagOf(f.Path))
		if !flag.Changed {
			continue
		}
		text := flag.Value.String()
		if err := check(f.Path, text); err != nil {
			return nil, wrongUsage(cmd, "--%s: %v", flag.Name, strings.TrimPrefix(err.Error(), f.Path+": "))
		}
		var value any = text
		if f.IsNumber() {
			value = json.Number(text)
		}
		put(body, f.Path, value)
	}
	return body, nil
}

// put sets a value at a path of objects: "shed.low" in the object shed.
func put(body map[string]any, path string, value any) {
	table, rest, nested := strings.Cut(path, ".")
	if !nested {
		body[path] = value
		return
	}
	below, ok := body[table].(map[string]any)
	if !ok {
		below = map[string]any{}
		body[table] = below
	}
	put(below, rest, value)
}

func (a *invocation) bucketResetCommand() *cobra.Command {
	names := make([]string, 0, len(settingFlags))
	for _, f := range settingFlags {
		names = append(names, f.Path)
	}
	return a.jsonFlag(&cobra.Command{
		Use:   "reset NAME [SETTING...]",
		Short: "Return to the configured settings",
		Long: `Remove the changes of ` + "`bucket set`" + `, so that the configuration is in force again: for
the named settings, or for all. They are ` + strings.Join(names[:4], ", ") + `,
` + strings.Join(names[4:], ", ") + `. To reset a setting that was not changed is harmless.`,
		Example: `  dispatcher bucket reset webhooks rate
  dispatcher bucket reset webhooks`,
		Args: positional("NAME", "[SETTING...]"),
		RunE: on(a, "bucket", httpapi.ResetBucket, asking(func(args []string) httpapi.BucketResets {
			return httpapi.BucketResets{BucketName: theBucket(args), Settings: args[1:]}
		}), func(v *opsview.Bucket) string { return resetText(v.Changes) }),
	})
}

// resetText returns the changes of a reset. A removed override may have been the same as the configuration.
func resetText(changes []shaper.Change) string {
	if len(changes) == 0 {
		return "nothing is changed: there was no override, it is as configured"
	}
	lines := make([]string, len(changes))
	for i, change := range changes {
		lines[i] = change.String()
		if change.Before == change.After {
			lines[i] = fmt.Sprintf("%s stays %s: the override is removed, and the configuration says the same", change.Setting, change.After)
		}
	}
	return strings.Join(withDeaths(lines, changes), "\n")
}

// withDeaths adds the effect of lower budgets on waiting jobs.
func withDeaths(lines []string, changes []shaper.Change) []string {
	if slices.ContainsFunc(changes, lowersBudgets) {
		return append(lines, "a waiting job that reserves more than a budget has becomes a dead letter (cost-impossible): raise the budget, then `dead redrive` sends it")
	}
	return lines
}

// lowersBudgets reports whether a change lets a single job reserve less of a unit than before.
func lowersBudgets(c shaper.Change) bool {
	if string(c.Setting) != string(shaper.FlowBudgets) {
		return false
	}
	var before, after shaper.Budgets
	if err := errors.Join(before.UnmarshalText([]byte(c.Before)), after.UnmarshalText([]byte(c.After))); err != nil {
		return false
	}
	return slices.ContainsFunc(after, func(b admission.Rate) bool {
		return !slices.ContainsFunc(before, func(old admission.Rate) bool { return old.Unit == b.Unit && old.Count <= b.Count })
	})
}

// changedText returns the changes of a bucket or a pool, and the command that reverts them.
func (a *invocation) changedText(changes []shaper.Change, what, name string) string {
	if len(changes) == 0 {
		return ""
	}
	lines, command := make([]string, len(changes)), fmt.Sprintf("%s reset %s", what, name)
	for i, change := range changes {
		lines[i] = change.String()
		command += " " + string(change.Setting)
	}
	return strings.Join(append(withDeaths(lines, changes), a.backText("configuration", command)), "\n")
}

// backText names the command that reverts a change.
func (a *invocation) backText(to, command string) string {
	return fmt.Sprintf("to go back to the %s: `%s %s`", to, a.program, command)
}

func (a *invocation) bucketPurgeCommand() *cobra.Command {
	var flags purgeFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "purge NAME",
		Short: "Drop all waiting jobs of a bucket",
		Long: `Drop all waiting jobs of a bucket, for good. There is no way back. None of them
departs from the first moment on. Jobs in flight, and jobs that come meanwhile, stay.
If this program is interrupted, the sweeper of a dispatcher goes on. Type the
bucket's name to confirm; without a terminal, give --yes instead. With --dry-run the
jobs are only counted.

It also works on a bucket that left the configuration.`,
		Example: `  dispatcher bucket purge webhooks
  dispatcher bucket purge webhooks --dry-run
  dispatcher bucket purge webhooks --keep-later --yes`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.purge(cmd, flags, "bucket", args[0], args[0], askBucketPurge(args[0]))
		},
	})
	flags.add(cmd)
	return cmd
}

func askBucketPurge(name string) askPurge {
	return func(ctx context.Context, c *api, request httpapi.PurgeRequest) (*opsview.Purge, error) {
		return call(ctx, c, httpapi.PurgeBucket, httpapi.BucketPurge{BucketName: httpapi.BucketName{Bucket: name}, PurgeRequest: request})
	}
}

// purgeFlags are the flags of all purges.
type purgeFlags struct{ yes, dryRun, keepLater bool }

func (f *purgeFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count the jobs that would be dropped")
	cmd.Flags().BoolVar(&f.keepLater, "keep-later", false, "leave delayed jobs and retries that wait for their time")
}

// purge drops the waiting jobs of a bucket, or of one of its flows or groups (what, and its name), after it has counted them and the operator has
// confirmed.
func (a *invocation) purge(cmd *cobra.Command, flags purgeFlags, what, bucket, name string, ask askPurge) error {
	if !flags.yes && !flags.dryRun && !isTerminal(a.in) {
		return wrongUsage(cmd, "this drops every job of the %s that waits: confirm with --yes, as there is no terminal to ask", what)
	}
	return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
		return a.purgeBy(ctx, c, flags, what, bucket, name, ask)
	})
}

// askPurge requests a purge, or a dry run of it.
type askPurge func(ctx context.Context, c *api, request httpapi.PurgeRequest) (*opsview.Purge, error)

func (a *invocation) purgeBy(ctx context.Context, c *api, flags purgeFlags, what, bucket, name string, ask askPurge) error {
	if flags.dryRun || !flags.yes {
		view, err := ask(ctx, c, httpapi.PurgeRequest{KeepLater: flags.keepLater, DryRun: true})
		if err != nil {
			return err
		}
		jobs := opsview.Count(deref(view.Matched), "waiting job")
		if flags.dryRun {
			return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "a purge would drop %s; nothing is changed\n", jobs) })
		}
		whose := fmt.Sprintf("bucket %q", bucket)
		if what != "bucket" {
			whose = fmt.Sprintf("%s %s of %s", what, quoted(name), whose)
		}
		if err := a.confirm(fmt.Sprintf("This drops %s of %s for good.", jobs, whose), what, name, "nothing is purged"); err != nil {
			return err
		}
	}
	view, err := ask(ctx, c, httpapi.PurgeRequest{KeepLater: flags.keepLater, Confirm: &name})
	if err != nil {
		if p, ok := errors.AsType[*problem](err); ok && p.Purged > 0 {
			a.note("%s purged before it failed; none of the others departs, and the sweeper of a dispatcher removes them", opsview.Count(p.Purged, "job"))
		}
		return err
	}
	return a.print(view, func(w io.Writer) {
		fmt.Fprintf(w, "purged: %s\n", opsview.Count(view.Purged, "job"))
		if view.Left > 0 {
			fmt.Fprintf(w, "the sweeper of a dispatcher removes %d more, none of which departs\n", view.Left)
		}
	})
}

// confirm asks the operator to type the name of a bucket, a flow or a group (of) before a change that cannot be undone, or is costly.
func (a *invocation) confirm(what, of, name, instead string) error {
	fmt.Fprintf(a.err, "%s Type the %s's name to go on: ", what, of)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(answer) != strings.TrimSpace(name) {
		return fail(exitFailed, "%s: that was not %q", instead, name)
	}
	return nil
}
