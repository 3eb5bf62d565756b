package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/webhook"
)

// onFlow makes the RunE of a command on the flow FLOW of BUCKET: it prints what do
// says; if that is nothing, or as JSON, the flow as it is then.
func (a *app) onFlow(do func(ctx context.Context, c *shaper.Control, bucket, flow string) (said string, err error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
			control, bucket, flow := s.client.Control(operator()), args[0], args[1]
			said, err := do(ctx, control, bucket, flow)
			if err != nil {
				return flowFault(err)
			}
			if said != "" && !a.json {
				return a.print(nil, func(w io.Writer) { fmt.Fprintln(w, said) })
			}
			info, err := control.Flow(ctx, bucket, flow)
			if err != nil {
				return flowFault(err)
			}
			return a.printFlow(viewFlow(&info))
		})
	}
}

// flowFault gives an error of a flow its exit code.
func flowFault(err error) error {
	if bad, ok := errors.AsType[*shaper.InvalidChangeError](err); ok {
		return fail(exitUsage, "%w", bad)
	}
	if errors.Is(err, shaper.ErrNoFlows) {
		return fail(exitUsage, "%w: it is configured without [buckets.flow]", err)
	}
	return err
}

func (a *app) flowPauseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause BUCKET FLOW",
		Short: "Stop departures of one flow",
		Long: `Stop departures of one flow, in all processes, at once and across restarts, until it
is resumed. Its jobs are taken in until it is full, and no other flow is delayed. To
pause a flow twice is harmless.`,
		Example: `  dispatcher flow pause webhooks acme --reason "their server is down"
  dispatcher flow resume webhooks acme`,
		Args: positional("BUCKET", "FLOW"),
	}
	cmd.RunE = a.onFlow(func(ctx context.Context, c *shaper.Control, bucket, flow string) (string, error) {
		return "paused: " + quoted(flow), c.PauseFlow(ctx, bucket, flow, reason)
	})
	a.jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why: a `text` for whoever looks, at most 500 bytes")
	return cmd
}

func (a *app) flowResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume BUCKET FLOW",
		Short:   "Let a paused flow run again",
		Long:    "Let a paused flow run again, at its pace. To resume what is not paused is harmless.",
		Example: `  dispatcher flow resume webhooks acme`,
		Args:    positional("BUCKET", "FLOW"),
	}
	cmd.RunE = a.onFlow(func(ctx context.Context, c *shaper.Control, bucket, flow string) (string, error) {
		was, err := c.ResumeFlow(ctx, bucket, flow)
		if !was {
			return "was not paused: " + quoted(flow), err
		}
		return "resumed: " + quoted(flow), err
	})
	a.jsonFlag(cmd)
	return cmd
}

// flowFlags are the flags of `flow set` that take one value.
var flowFlags = []struct {
	setting shaper.FlowSetting
	usage   string
}{
	{shaper.FlowRate, "departures, such as `5/s` or 100/m"},
	{shaper.FlowBurst, "`number` of departures that may leave at once after a quiet time"},
	{shaper.FlowCapacity, "`number` of unfinished jobs at most; 0: the bucket's bound only"},
	{shaper.FlowMaxInFlight, "`number` of jobs in flight at most; 0: the bucket's bound only"},
	{shaper.FlowWeight, "`number` of departures in each of its turns, 1 to 1000"},
	{shaper.FlowURL, "`url` of its jobs that name none"},
}

func (a *app) flowSetCommand() *cobra.Command {
	var headers []string
	cmd := &cobra.Command{
		Use:   "set BUCKET FLOW --SETTING VALUE...",
		Short: "Give a flow settings of its own",
		Long: `Give one flow settings of its own, over those of all flows of its bucket, in all
processes, at once and across restarts, until it is reset. What is not named stays. A
rate of 0 is refused: pause the flow, so that all see why.

Its url is where jobs go that name none, before the bucket's. Its headers and secrets
are used only towards the origin of that url or, without one, of the bucket's. Secrets
are not set here, where others could read them: send them to the HTTP API.`,
		Example: `  dispatcher flow set webhooks acme --rate 5/s --max-in-flight 2
  dispatcher flow set webhooks acme --weight 10
  dispatcher flow set webhooks acme --url https://acme.example/hook --header "X-Tenant: 7"`,
		Args: positional("BUCKET", "FLOW"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var patch shaper.FlowPatch
		var own shaper.OwnDelivery // what the worker is asked about
		for _, f := range flowFlags {
			name := flagOf(shaper.Setting(f.setting))
			if flag := cmd.Flags().Lookup(name); flag.Changed {
				if err := patch.Put(f.setting, flag.Value.String()); err != nil {
					return wrongUsage(cmd, "--%s: %v", name, strings.TrimPrefix(err.Error(), string(f.setting)+": "))
				}
				if f.setting == shaper.FlowURL {
					own.URL = flag.Value.String()
				}
			}
		}
		if len(headers) > 0 {
			named := make(map[string]string, len(headers))
			for _, header := range headers {
				name, value, ok := strings.Cut(header, ":")
				if !ok {
					return wrongUsage(cmd, "--header: %q: want \"Name: value\"", header)
				}
				named[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
			if err := patch.PutHeaders(named); err != nil {
				return wrongUsage(cmd, "--header: %v", strings.TrimPrefix(err.Error(), string(shaper.FlowHeaders)+": "))
			}
			own.Headers = named
		}
		if err := webhook.CheckFlow(&own); err != nil {
			return wrongUsage(cmd, "%v", err)
		}
		if patch.IsZero() {
			return wrongUsage(cmd, "nothing is changed: give --rate or another setting")
		}
		return a.onFlow(func(ctx context.Context, c *shaper.Control, bucket, flow string) (string, error) {
			_, err := c.SetFlow(ctx, bucket, flow, patch)
			return "", err
		})(cmd, args)
	}
	a.jsonFlag(cmd)
	cmd.Flags().SortFlags = false
	for _, f := range flowFlags {
		cmd.Flags().String(flagOf(shaper.Setting(f.setting)), "", f.usage)
	}
	cmd.Flags().StringArrayVar(&headers, "header", nil, "`\"Name: value\"` sent with its deliveries; replaces all headers it had")
	return cmd
}

func (a *app) flowResetCommand() *cobra.Command {
	names := make([]string, 0, len(flowFlags))
	for _, setting := range shaper.FlowSettingNames() {
		names = append(names, string(setting))
	}
	cmd := &cobra.Command{
		Use:   "reset BUCKET FLOW [SETTING...]",
		Short: "Let a flow be as all of its bucket",
		Long: `Take back settings that one flow has of its own: those that are named, or all. They
are ` + strings.Join(names, ", ") + `. A pause
stays. To reset what was not set is harmless.`,
		Example: `  dispatcher flow reset webhooks acme rate
  dispatcher flow reset webhooks acme`,
		Args: positional("BUCKET", "FLOW", "[SETTING...]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var patch shaper.FlowPatch
		for _, name := range args[2:] {
			if err := patch.Clear(shaper.FlowSetting(name)); err != nil {
				return wrongUsage(cmd, "%v", err)
			}
		}
		return a.onFlow(func(ctx context.Context, c *shaper.Control, bucket, flow string) (string, error) {
			if !patch.IsZero() {
				_, err := c.SetFlow(ctx, bucket, flow, patch)
				return "reset: " + quoted(flow), err
			}
			had, err := c.DeleteFlowSettings(ctx, bucket, flow)
			if !had {
				return "had no settings of its own: " + quoted(flow), err
			}
			return "reset: " + quoted(flow), err
		})(cmd, args)
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) flowPurgeCommand() *cobra.Command {
	var yes bool
	var options shaper.PurgeOptions
	cmd := &cobra.Command{
		Use:   "purge BUCKET FLOW",
		Short: "Drop all jobs of one flow that wait",
		Long: `Drop all jobs of one flow that wait, for good. There is no way back. None of them
departs from the first moment on; what is in flight is left, and jobs that come
meanwhile are not touched. The flow's name has to be typed to confirm; where there is
no terminal, --yes says so instead.`,
		Example: `  dispatcher flow purge webhooks acme
  dispatcher flow purge webhooks acme --keep-later --yes`,
		Args: positional("BUCKET", "FLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !isTerminal(a.in) {
				return wrongUsage(cmd, "this drops every job of the flow that waits: confirm with --yes, as there is no terminal to ask")
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				return a.flowPurge(ctx, s, args[0], args[1], options, yes)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&options.KeepLater, "keep-later", false, "leave delayed jobs and retries that wait for their time")
	return cmd
}

func (a *app) flowPurge(ctx context.Context, s *station, bucket, flow string, options shaper.PurgeOptions, yes bool) error {
	control := s.client.Control(operator())
	if !yes {
		info, err := control.Flow(ctx, bucket, flow)
		if err != nil {
			return flowFault(err)
		}
		fmt.Fprintf(a.err, "This drops %s of flow %s of bucket %q for good. Type the flow's name to go on: ",
			count(info.Waiting, "waiting job"), quoted(flow), bucket)
		answer, err := bufio.NewReader(a.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the confirmation: %w", err)
		}
		if strings.TrimSpace(answer) != strings.TrimSpace(flow) {
			return fail(exitFailed, "nothing is purged: that was not %q", flow)
		}
	}
	purged, err := control.PurgeFlow(ctx, bucket, flow, options)
	if err != nil {
		if purged.Left > 0 {
			a.note("%s purged before it failed; none of the others departs, and the sweeper of a dispatcher removes them", count(purged.Jobs, "job"))
		}
		return flowFault(err)
	}
	view := struct {
		Bucket string `json:"bucket"`
		Flow   string `json:"flow"`
		Purged int64  `json:"purged"`
	}{bucket, flow, purged.Jobs}
	return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "purged: %s\n", count(purged.Jobs, "job")) })
}
