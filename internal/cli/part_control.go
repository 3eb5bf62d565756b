package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// on makes the RunE of a command on the flow or group named behind BUCKET. The command prints the
// text that do returns. Without a text, or with --json, it prints the flow or group after the change.
func (p *parts) on(do func(ctx context.Context, part opsview.Part, bucket, name string) (said string, err error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return p.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
			bucket, name := args[0], args[1]
			part := p.One(s.operator.As(author()).Bucket(bucket), p.inGroup(cmd), name)
			said, err := do(ctx, part, bucket, name)
			if err != nil {
				return p.fault(err)
			}
			if said != "" && !p.json {
				return p.print(nil, func(w io.Writer) { fmt.Fprintln(w, said) })
			}
			view, err := part.Show(ctx)
			if err != nil {
				return p.fault(err)
			}
			return p.printOne(view)
		})
	}
}

// createFlag gives a command that changes one its --create.
func (p *parts) createFlag(cmd *cobra.Command, create *bool) {
	cmd.Flags().BoolVar(create, "create", false, p.text("also where the bucket has no $ of this name now: before its first job"))
}

// mustBeKnown fails if the bucket has no flow or group of this name now: most often the name is mistyped.
func (p *parts) mustBeKnown(ctx context.Context, part opsview.Part, bucket, name string) error {
	view, err := part.Show(ctx)
	if err != nil || view.Known {
		return err
	}
	return fail(exitNotFound, "bucket %q has no %s %q now: see `%s %s list %s`, or give --create if its first job is still to come",
		bucket, p.Name, line(name, 200), p.program, p.Name, bucket)
}

func (p *parts) pauseCommand() *cobra.Command {
	var reason string
	var create bool
	cmd := &cobra.Command{
		Use:   "pause BUCKET " + p.arg(),
		Short: p.text("Stop departures of one $"),
		Long: p.text(`Stop departures of one $, in all processes, at once and across restarts, until it
is resumed. Its jobs are taken in until it is full, and no other $ is delayed. To
pause a $ twice is harmless. A $ that has no jobs and no settings now takes --create,
because its name may be mistyped.`),
		Example: p.text(`  dispatcher $ pause webhooks acme --reason "their server is down"
  dispatcher $ resume webhooks acme`),
		Args: positional("BUCKET", p.arg()),
	}
	cmd.RunE = p.on(func(ctx context.Context, part opsview.Part, bucket, name string) (string, error) {
		if !create {
			if err := p.mustBeKnown(ctx, part, bucket, name); err != nil {
				return "", err
			}
		}
		return "paused: " + quoted(name), part.Pause(ctx, reason)
	})
	p.createFlag(cmd, &create)
	cmd.Flags().StringVar(&reason, "reason", "", "the reason: a `text` of at most 500 bytes")
	return cmd
}

func (p *parts) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume BUCKET " + p.arg(),
		Short:   p.text("Let a paused $ run again"),
		Long:    p.text("Let a paused $ run again, at its pace. To resume a $ that is not paused is harmless."),
		Example: p.text(`  dispatcher $ resume webhooks acme`),
		Args:    positional("BUCKET", p.arg()),
	}
	cmd.RunE = p.on(func(ctx context.Context, part opsview.Part, bucket, name string) (string, error) {
		was, err := part.Resume(ctx)
		if !was {
			return "was not paused: " + quoted(name), err
		}
		return "resumed: " + quoted(name), err
	})
	return cmd
}

func (p *parts) releaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release BUCKET " + p.arg(),
		Short: p.text("End a hold or an open circuit breaker of one $"),
		Long: p.text(`End a hold or an open circuit breaker of one $, and forget its adaptive rate. Its waiting
jobs go on at once, at its pace. The receiver's next answers may slow or hold the $ again.
To release a $ that is not held is harmless.`),
		Example: p.text(`  dispatcher $ release webhooks acme`),
		Args:    positional("BUCKET", p.arg()),
	}
	cmd.RunE = p.on(func(ctx context.Context, part opsview.Part, _, name string) (string, error) {
		was, err := p.Release(ctx, part)
		return releasedText(was, quoted(name)), err
	})
	return cmd
}

func (p *parts) enableCommand() *cobra.Command {
	var redrive bool
	cmd := &cobra.Command{
		Use:   "enable BUCKET " + p.arg(),
		Short: p.text("Let a disabled $ run again"),
		Long: p.text(`Let a disabled $ take and send jobs again, at its pace. A $ is disabled when its receiver
answers that it is gone (410), or has not worked for breaker.disable_after. Its waiting jobs
then became dead letters with the cause flow-disabled: --redrive puts them back, the oldest
first, as far as there is room. To enable a $ that is not disabled is harmless.`),
		Example: p.text(`  dispatcher $ enable webhooks acme
  dispatcher $ enable webhooks acme --redrive`),
		Args: positional("BUCKET", p.arg()),
	}
	cmd.RunE = p.on(func(ctx context.Context, part opsview.Part, bucket, name string) (string, error) {
		was, redriven, err := p.Enable(ctx, part, redrive)
		said := "was not disabled: " + quoted(name)
		if was {
			said = "enabled: " + quoted(name)
		}
		if redrive {
			said += fmt.Sprintf("\nredriven: %s", count(redriven.Moved, "job"))
		}
		if left := redriven.Full + redriven.FlowFull + redriven.GroupFull; err == nil && left > 0 {
			err = fail(exitRefused, "%s; the bucket or the %s is full, and the rest stays dead: use `%s dead redrive %s --all` when there is room",
				strings.ReplaceAll(said, "\n", "; "), p.Name, p.program, bucket)
		}
		return said, err
	})
	cmd.Flags().BoolVar(&redrive, "redrive", false, "put the jobs back that became dead letters because it was disabled")
	return cmd
}

// partFlags are the flags of `flow set` and `group set` that take one value.
var partFlags = []struct {
	setting shaper.FlowSetting
	usage   string
}{
	{shaper.FlowRate, "departures, such as `5/s` or 100/m"},
	{shaper.FlowBurst, "`number` of departures that may leave at once after a quiet time"},
	{shaper.FlowCapacity, "`number` of unfinished jobs at most; 0: the bucket's bound only"},
	{shaper.FlowMaxInFlight, "`number` of jobs in flight at most; 0: the bucket's bound only"},
	{shaper.FlowWeight, "`number` of departures in each of its turns, 1 to 1000"},
	{shaper.FlowURL, "`url` for its jobs that name no url"},
}

// ofDeliveries is the part of the help of `flow set` on settings that groups do not have.
const ofDeliveries = `

Jobs that name no url go to the url of their flow, else to the bucket's. The headers and
secrets of a flow are used only towards the origin of its url or, without one, of the
bucket's url.

` + valueForms + `
Secrets are given in these forms only.`

func (p *parts) setCommand() *cobra.Command {
	var headers, signing []string
	var create bool
	cmd := &cobra.Command{
		Use:   "set BUCKET " + p.arg() + " --SETTING VALUE...",
		Short: p.text("Give a $ settings of its own"),
		Long: p.text(`Give one $ settings of its own, over those of all $s of its bucket. They hold in all
processes, at once and across restarts, until they are reset. Settings that are not named
stay. A rate of 0 is refused: pause the $ instead, with a reason. A $ without jobs and
settings needs --create, because its name may be mistyped.`),
		Example: p.text(`  dispatcher $ set webhooks acme --rate 5/s --max-in-flight 2
  dispatcher $ set webhooks acme --weight 10`),
		Args: positional("BUCKET", p.arg()),
	}
	cmd.Flags().SortFlags = false
	for _, f := range partFlags {
		if slices.Contains(p.Settings, f.setting) {
			cmd.Flags().String(flagOf(shaper.Setting(f.setting)), "", f.usage)
		}
	}
	if slices.Contains(p.Settings, shaper.FlowHeaders) {
		cmd.Long += ofDeliveries
		cmd.Example += p.text("\n" + `  dispatcher $ set webhooks acme --url https://acme.example/hook --header "X-Tenant: 7"
  dispatcher $ set webhooks acme --header "Authorization: env:ACME_TOKEN" --secret file:/run/secrets/acme`)
		cmd.Flags().StringArrayVar(&headers, "header", nil, "`\"Name: value\"` sent with its deliveries; may be repeated; replaces all headers it had")
		cmd.Flags().StringArrayVar(&signing, "secret", nil, "`source` of a secret that signs its deliveries: env:VARIABLE, file:/path or - for standard input; may be repeated; replaces all secrets it had")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		patch, err := p.patchOf(cmd, headers, signing)
		if err != nil {
			return err
		}
		return p.on(func(ctx context.Context, part opsview.Part, bucket, name string) (string, error) {
			if !create {
				if err := p.mustBeKnown(ctx, part, bucket, name); err != nil {
					return "", err
				}
			}
			_, err := part.Set(ctx, patch)
			return "", err
		})(cmd, args)
	}
	p.createFlag(cmd, &create)
	return cmd
}

// patchOf makes a patch of the flags that are given.
func (p *parts) patchOf(cmd *cobra.Command, headers, signing []string) (patch operator.FlowPatch, err error) {
	for _, f := range partFlags {
		name := flagOf(shaper.Setting(f.setting))
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		if err := patch.Put(f.setting, flag.Value.String()); err != nil {
			return patch, wrongUsage(cmd, "--%s: %v", name, strings.TrimPrefix(err.Error(), string(f.setting)+": "))
		}
	}
	values := secrets{app: p.app}
	named, err := values.single(cmd, headers)
	if err != nil {
		return patch, err
	}
	if named != nil {
		if err := patch.PutHeaders(named); err != nil {
			return patch, wrongUsage(cmd, "--header: %v", strings.TrimPrefix(err.Error(), string(shaper.FlowHeaders)+": "))
		}
	}
	if len(signing) > 0 {
		list, err := values.list(cmd, signing)
		if err != nil {
			return patch, err
		}
		if err := patch.PutSecrets(list); err != nil {
			return patch, wrongUsage(cmd, "--secret: %v", strings.TrimPrefix(err.Error(), string(shaper.FlowSecrets)+": "))
		}
	}
	if patch.IsZero() {
		return patch, wrongUsage(cmd, "nothing is changed: give --rate or another setting")
	}
	return patch, nil
}

func (p *parts) resetCommand() *cobra.Command {
	names := make([]string, len(p.Settings))
	for i, setting := range p.Settings {
		names[i] = string(setting)
	}
	cmd := &cobra.Command{
		Use:   "reset BUCKET " + p.arg() + " [SETTING...]",
		Short: p.text("Return a $ to the settings of its bucket"),
		Long: p.text(`Remove settings that one $ has of its own: the named ones, or all. They are
` + strings.Join(names, ", ") + `. A pause
stays. To reset a setting that was not set is harmless.`),
		Example: p.text(`  dispatcher $ reset webhooks acme rate
  dispatcher $ reset webhooks acme`),
		Args: positional("BUCKET", p.arg(), "[SETTING...]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var patch operator.FlowPatch
		for _, name := range args[2:] {
			setting := shaper.FlowSetting(name)
			if !slices.Contains(p.Settings, setting) {
				return wrongUsage(cmd, "%s: is no setting of a %s: want %s", line(name, 40), p.Name, strings.Join(names, ", "))
			}
			_ = patch.Clear(setting) // one of the list
		}
		return p.on(func(ctx context.Context, part opsview.Part, bucket, name string) (string, error) {
			if !patch.IsZero() {
				_, err := part.Set(ctx, patch)
				return "reset: " + quoted(name), err
			}
			had, err := part.Reset(ctx)
			if !had {
				return "had no settings of its own: " + quoted(name), err
			}
			return "reset: " + quoted(name), err
		})(cmd, args)
	}
	return cmd
}

func (p *parts) purgeCommand() *cobra.Command {
	var yes bool
	var options operator.PurgeOptions
	long := `Drop all jobs of one flow that wait, for good. There is no way back. None of them
departs from the first moment on; what is in flight is left, and jobs that come
meanwhile are not touched. The flow's name has to be typed to confirm; where there is
no terminal, --yes says so instead.`
	if p.Name == "group" {
		long = `Drop all jobs of one group that wait, for good. There is no way back. It goes flow by
flow, and none of a flow departs from its moment on; what is in flight is left, and jobs
that come meanwhile are not touched. The group's name has to be typed to confirm; where
there is no terminal, --yes says so instead.`
	}
	cmd := &cobra.Command{
		Use:   "purge BUCKET " + p.arg(),
		Short: p.text("Drop all waiting jobs of one $"),
		Long:  long,
		Example: p.text(`  dispatcher $ purge webhooks acme
  dispatcher $ purge webhooks acme --keep-later --yes`),
		Args: positional("BUCKET", p.arg()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !isTerminal(p.in) {
				return wrongUsage(cmd, "this drops every job of the %s that waits: confirm with --yes, as there is no terminal to ask", p.Name)
			}
			return p.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				part := p.One(s.operator.As(author()).Bucket(args[0]), p.inGroup(cmd), args[1])
				return p.purge(ctx, part, args[0], args[1], options, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&options.KeepLater, "keep-later", false, "leave delayed jobs and retries that wait for their time")
	return cmd
}

func (p *parts) purge(ctx context.Context, part opsview.Part, bucket, name string, options operator.PurgeOptions, yes bool) error {
	view, err := part.Show(ctx)
	if err != nil {
		return p.fault(err)
	}
	if !yes {
		fmt.Fprintf(p.err, "This drops %s of %s %s of bucket %q for good. Type the %s's name to go on: ",
			count(view.Waiting, "waiting job"), p.Name, quoted(name), bucket, p.Name)
		answer, err := bufio.NewReader(p.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the confirmation: %w", err)
		}
		if strings.TrimSpace(answer) != strings.TrimSpace(name) {
			return fail(exitFailed, "nothing is purged: that was not %q", name)
		}
	}
	purged, err := part.Purge(ctx, options)
	if err != nil {
		if purged.Jobs > 0 || purged.Left > 0 {
			p.note("%s purged before it failed; none of the others of its flow departs, and the sweeper of a dispatcher removes them", count(purged.Jobs, "job"))
		}
		return p.fault(err)
	}
	done := struct {
		Bucket string  `json:"bucket"`
		Group  *string `json:"group,omitempty"`
		Flow   *string `json:"flow,omitempty"`
		Purged int64   `json:"purged"`
	}{bucket, view.Group, view.Flow, purged.Jobs}
	return p.print(done, func(w io.Writer) { fmt.Fprintf(w, "purged: %s\n", count(purged.Jobs, "job")) })
}
