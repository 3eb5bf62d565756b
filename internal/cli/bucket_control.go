package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// onBucket makes the RunE of a command that changes the bucket NAME by a request to an address below it. The command prints
// what say makes of the answer, or as JSON the bucket after the change.
func (a *invocation) onBucket(method, below string, ask func(*cobra.Command, []string) (url.Values, any, error), say func(v *opsview.Bucket) string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		query, body, err := ask(cmd, args)
		if err != nil {
			return err
		}
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			var view opsview.Bucket
			if err := c.call(ctx, method, apiPath("buckets", args[0])+below, query, body, &view); err != nil {
				return named(err, "bucket", args[0])
			}
			return a.print(view, func(w io.Writer) { fmt.Fprintln(w, say(&view)) })
		})
	}
}

// nothing asks a request without a query and a body.
func nothing(*cobra.Command, []string) (url.Values, any, error) { return nil, nil, nil }

// because makes the body of a pause.
func because(reason string) any {
	if reason == "" {
		return nil
	}
	return map[string]string{"reason": reason}
}

func (a *invocation) bucketPauseCommand() *cobra.Command {
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
	cmd.RunE = a.onBucket(http.MethodPost, "/pause", func(*cobra.Command, []string) (url.Values, any, error) { return nil, because(reason), nil },
		func(v *opsview.Bucket) string { return "paused: " + v.Name })
	a.jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why the bucket is paused: a `text` of at most 500 bytes")
	return cmd
}

func (a *invocation) bucketResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Let a paused bucket run again",
		Long: `Let a paused bucket run again, at its pace: the jobs that waited do not leave in a
burst. To resume a bucket that is not paused is harmless.`,
		Example: `  dispatcher bucket resume webhooks`,
		Args:    positional("NAME"),
	}
	cmd.RunE = a.onBucket(http.MethodPost, "/resume", nothing, func(v *opsview.Bucket) string { return resumedText(v.Outcome, v.Name) })
	a.jsonFlag(cmd)
	return cmd
}

func (a *invocation) bucketReleaseCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
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
	}
	ask := func(*cobra.Command, []string) (url.Values, any, error) {
		if all {
			return url.Values{"all_flows": {"true"}}, nil, nil
		}
		return nil, nil, nil
	}
	cmd.RunE = a.onBucket(http.MethodPost, "/release", ask, bucketReleasedText)
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&all, "all-flows", false, "release its flows too")
	return cmd
}

// bucketReleasedText says what a release of a bucket, or of all its flows too, came to.
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

// settingFlags are the flags of `bucket set`, and poolFlags those of `pool set`: the settings whose tags say that an operator may change them.
var (
	settingFlags = setting.Changes(reflect.TypeFor[shaper.Bucket]())
	poolFlags    = setting.Changes(reflect.TypeFor[shaper.Pool]())
)

func flagOf(path string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(path)
}

func (a *invocation) bucketSetCommand() *cobra.Command {
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
	cmd.RunE = a.onBucket(http.MethodPatch, "", settingsOf(settingFlags), func(v *opsview.Bucket) string { return changesText(v.Changes) })
	a.jsonFlag(cmd)
	addSettings(cmd, settingFlags)
	return cmd
}

// addSettings gives a command flags that take settings.
func addSettings(cmd *cobra.Command, flags []*setting.Key) {
	cmd.Flags().SortFlags = false
	for _, f := range flags {
		cmd.Flags().String(flagOf(f.Path), "", strings.Replace(f.Help, "'", "`", 2))
	}
}

// settingsOf asks for a patch of the flags that are given.
func settingsOf(flags []*setting.Key) func(cmd *cobra.Command, _ []string) (url.Values, any, error) {
	return func(cmd *cobra.Command, _ []string) (url.Values, any, error) {
		var patch operator.BucketPatch // to check them
		body, err := given(cmd, flags, func(path, text string) error { return patch.Put(shaper.Setting(path), text) })
		if err == nil && patch.IsZero() {
			err = errNoSetting(cmd)
		}
		return nil, body, err
	}
}

func errNoSetting(cmd *cobra.Command) error {
	return wrongUsage(cmd, "nothing is changed: give --rate or another setting")
}

// given makes the body of a change of the flags that are given, each checked by check.
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

// put puts a value at a path of objects: "shed.low" into the object shed.
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

// settingNames asks for the settings that are named behind NAME.
func settingNames(_ *cobra.Command, args []string) (url.Values, any, error) {
	return url.Values{"setting": args[1:]}, nil, nil
}

func (a *invocation) bucketResetCommand() *cobra.Command {
	names := make([]string, 0, len(settingFlags))
	for _, f := range settingFlags {
		names = append(names, f.Path)
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
	cmd.RunE = a.onBucket(http.MethodDelete, "/overrides", settingNames, func(v *opsview.Bucket) string { return resetText(v.Changes) })
	a.jsonFlag(cmd)
	return cmd
}

// resetText says what a reset changed. An override that went may have been the same as the configuration.
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
	return strings.Join(lines, "\n")
}

func changesText(changes []shaper.Change) string {
	lines := make([]string, len(changes))
	for i, change := range changes {
		lines[i] = change.String()
	}
	return strings.Join(lines, "\n")
}
