package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/internal/shellword"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// onPart returns the RunE of a command that carries out an operation on the flow or group after BUCKET. The command prints the text that say makes of
// the response. Without a say, or with --json, it prints the flow or group after the change.
func onPart[N httpapi.PartName, V any, P viewOf[V], In any](p *parts[N, V, P], op *httpapi.Operation[In, *V], ask func(cmd *cobra.Command, args []string) (In, error), say func(o opsview.Outcome, name string) string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		in, err := ask(cmd, args)
		if err != nil {
			return err
		}
		return p.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			view, err := call(ctx, c, op, in)
			switch {
			case err != nil:
				return p.fault(err, args[0], args[1])
			case say == nil:
				return p.printOne(P(view))
			}
			return p.printChange(view, say(opsview.Outcome{Changed: P(view).Alike().Changed}, quoted(args[1])))
		})
	}
}

// printChange prints the result of a change, or as JSON the changed flow or group.
func (p *parts[N, V, P]) printChange(view P, said string) error {
	if p.json {
		return p.printOne(view)
	}
	if shown := view.Alike(); shown.Unknown && shown.Changed != nil && !*shown.Changed {
		said += "\n" + p.unknownText(view)
	}
	return p.print(nil, func(w io.Writer) { fmt.Fprintln(w, said) })
}

// just returns the input of a request that has nothing but the flow or group.
func (p *parts[N, V, P]) just(cmd *cobra.Command, args []string) (N, error) { //nolint:unparam // as all that ask
	return p.one(cmd, args), nil
}

// createFlag adds --create to a command that changes a flow or group.
func (p *parts[N, V, P]) createFlag(cmd *cobra.Command, create *bool) {
	cmd.Flags().BoolVar(create, "create", false, p.text("also where the bucket has no $ of this name now: before its first job"))
}

func (p *parts[N, V, P]) pauseCommand() *cobra.Command {
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
	cmd.RunE = onPart(p, p.ops.Pause, func(cmd *cobra.Command, args []string) (httpapi.PartPause[N], error) {
		return httpapi.PartPause[N]{Part: p.one(cmd, args), MayCreate: httpapi.MayCreate{Create: create}, PauseReason: httpapi.PauseReason{Reason: reason}}, nil
	}, func(_ opsview.Outcome, name string) string { return "paused: " + name })
	p.createFlag(cmd, &create)
	cmd.Flags().StringVar(&reason, "reason", "", "the reason: a `text` of at most 500 bytes")
	return cmd
}

func (p *parts[N, V, P]) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume BUCKET " + p.arg(),
		Short:   p.text("Let a paused $ run again"),
		Long:    p.text("Let a paused $ run again, at its pace. To resume a $ that is not paused is harmless."),
		Example: p.text(`  dispatcher $ resume webhooks acme`),
		Args:    positional("BUCKET", p.arg()),
	}
	cmd.RunE = onPart(p, p.ops.Resume, p.just, resumedText)
	return cmd
}

func flowReleaseCommand(p *flowParts) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release BUCKET " + p.arg(),
		Short: p.text("End a hold or an open circuit breaker of one $"),
		Long: p.text(`End a hold or an open circuit breaker of one $, and forget its adaptive rate. Its waiting
jobs go on at once, at its pace. The receiver's next answers may slow or hold the $ again.
To release a $ that is not held is harmless.`),
		Example: p.text(`  dispatcher $ release webhooks acme`),
		Args:    positional("BUCKET", p.arg()),
	}
	cmd.RunE = onPart(p, httpapi.ReleaseFlow, p.just, releasedText)
	return cmd
}

func flowEnableCommand(p *flowParts) *cobra.Command {
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := httpapi.FlowEnable{FlowName: p.one(cmd, args), Redrive: redrive}
		return p.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			v, err := call(ctx, c, httpapi.EnableFlow, in)
			if err != nil {
				return p.fault(err, args[0], args[1])
			}
			said := "was not disabled: " + quoted(args[1])
			if deref(v.Changed) {
				said = "enabled: " + quoted(args[1])
			}
			if v.Redriven != nil {
				said += fmt.Sprintf("\nredriven: %s", opsview.Count(v.Redriven.Moved, "job"))
				if v.Redriven.Full > 0 {
					return fail(exitRefused, "%s; the bucket or the %s is full, and the rest stays dead: use `%s dead redrive %s --all` when there is room",
						strings.ReplaceAll(said, "\n", "; "), p.kind, p.program, args[0])
				}
			}
			return p.printChange(&v.Flow, said)
		})
	}
	cmd.Flags().BoolVar(&redrive, "redrive", false, "put the jobs back that became dead letters because it was disabled")
	return cmd
}

// flags returns the settings that `flow set` and `group set` take as one value each. Headers and secrets have no help in their tags: they have flags of
// their own, which name files and variables, so that no credential is on the command line.
func (p *parts[N, V, P]) flags() []*setting.Key {
	return slices.DeleteFunc(setting.Changes(reflect.TypeFor[shaper.OwnFlow]()), func(k *setting.Key) bool {
		return k.Help == "" || !slices.Contains(p.settings, shaper.FlowSetting(k.Path))
	})
}

// ofDeliveries is the part of the help of `flow set` on settings that groups do not have.
const ofDeliveries = `

Jobs that name no url go to the url of their flow, else to the bucket's. The headers and
secrets of a flow are used only towards the origin of its url or, without one, of the
bucket's url.

` + valueForms + `
Secrets are given in these forms only. ` + "`$ show`" + ` numbers the secrets of a flow and shows the
fingerprint of each: the first 12 digits of its SHA-256.`

func (p *parts[N, V, P]) setCommand() *cobra.Command {
	var own ownDelivery
	var create bool
	cmd := &cobra.Command{
		Use:   "set BUCKET " + p.arg() + " --SETTING VALUE...",
		Short: p.text("Give a $ settings of its own"),
		Long: p.text(`Give one $ settings of its own, which override the settings for all $s of its bucket. All
processes use them at once and across restarts, until they are reset. Settings that are not named
stay. A rate of 0 is refused: pause the $ instead, with a reason. A $ without jobs and
settings needs --create, because its name may be mistyped.`),
		Example: p.text(`  dispatcher $ set webhooks acme --rate 5/s --max-in-flight 2
  dispatcher $ set webhooks acme --weight 10`),
		Args: positional("BUCKET", p.arg()),
	}
	addSettings(cmd, p.flags())
	if slices.Contains(p.settings, shaper.FlowHeaders) {
		cmd.Long += p.text(ofDeliveries)
		cmd.Example += p.text("\n" + `  dispatcher $ set webhooks acme --url https://acme.example/hook --header "X-Tenant: 7"
  dispatcher $ set webhooks acme --header "Authorization: env:ACME_TOKEN" --secret file:/run/secrets/acme
  dispatcher $ set webhooks acme --add-secret file:/run/secrets/acme-new
  dispatcher $ set webhooks acme --remove-secret 2`)
		own.flags(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		patch, err := p.patchOf(cmd, &own)
		if err != nil {
			return err
		}
		if err := p.nameRemoved(cmd, args, &own, patch); err != nil {
			return err
		}
		if err := onPart(p, p.ops.Set, p.patching(patch, create), nil)(cmd, args); err != nil || p.json {
			return err
		}
		return p.tellReset(cmd, args, patch)
	}
	p.createFlag(cmd, &create)
	return cmd
}

// tellReset names the command that reverts a change. There is none for secrets that were added or removed.
func (p *parts[N, V, P]) tellReset(cmd *cobra.Command, args []string, patch map[string]any) error {
	command := fmt.Sprintf("%s reset %s %s", p.kind, args[0], shellword.Quote(args[1]))
	resets := false
	for _, name := range p.settings {
		if _, given := patch[string(name)]; given {
			command, resets = command+" "+string(name), true
		}
	}
	if !resets {
		return nil
	}
	if group := p.groupOf(cmd); group != nil {
		command += " --group " + shellword.Quote(*group)
	}
	_, err := fmt.Fprintln(p.out, p.backText("settings of the bucket", command))
	return err
}

// patchOf returns the body of a patch from the flags that are set.
func (p *parts[N, V, P]) patchOf(cmd *cobra.Command, own *ownDelivery) (body map[string]any, err error) {
	var patch operator.FlowPatch // to check them
	body, err = given(cmd, p.flags(), func(path, text string) error { return patch.Put(shaper.FlowSetting(path), text) })
	if err != nil {
		return nil, err
	}
	if err := p.ownDelivery(cmd, own, &patch, body); err != nil {
		return nil, err
	}
	if patch.IsZero() && len(own.remove) == 0 {
		return nil, errNoSetting(cmd)
	}
	return body, nil
}

func (p *parts[N, V, P]) resetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset BUCKET " + p.arg() + " [SETTING...]",
		Short: p.text("Return a $ to the settings of its bucket"),
		Long: p.text(`Remove settings that one $ has of its own: the named ones, or all. They are
` + p.settingNames() + `. A pause
stays. To reset a setting that was not set is harmless.`),
		Example: p.text(`  dispatcher $ reset webhooks acme rate
  dispatcher $ reset webhooks acme`),
		Args: positional("BUCKET", p.arg(), "[SETTING...]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 2 {
			return onPart(p, p.ops.Set, p.clear, func(_ opsview.Outcome, name string) string { return "reset: " + name })(cmd, args)
		}
		return onPart(p, p.ops.Reset, p.just, func(o opsview.Outcome, name string) string {
			if !deref(o.Changed) {
				return "had no settings of its own: " + name
			}
			return "reset: " + name
		})(cmd, args)
	}
	return cmd
}

// clear returns a patch that removes the settings named after BUCKET and FLOW.
func (p *parts[N, V, P]) clear(cmd *cobra.Command, args []string) (in httpapi.PartPatch[N], err error) {
	body := map[string]any{}
	for _, name := range args[2:] {
		if !slices.Contains(p.settings, shaper.FlowSetting(name)) {
			return in, wrongUsage(cmd, "%s: is no setting of a %s: want %s", line(name, 40), p.kind, p.settingNames())
		}
		body[name] = nil
	}
	return p.patching(body, true)(cmd, args)
}

// patching returns the ask of a change of settings.
func (p *parts[N, V, P]) patching(settings map[string]any, create bool) func(*cobra.Command, []string) (httpapi.PartPatch[N], error) {
	return func(cmd *cobra.Command, args []string) (httpapi.PartPatch[N], error) {
		body, err := json.Marshal(settings)
		return httpapi.PartPatch[N]{Part: p.one(cmd, args), MayCreate: httpapi.MayCreate{Create: create}, Settings: body}, err
	}
}

func (p *parts[N, V, P]) settingNames() string {
	names := make([]string, len(p.settings))
	for i, setting := range p.settings {
		names[i] = string(setting)
	}
	return strings.Join(names, ", ")
}

func (p *parts[N, V, P]) purgeCommand() *cobra.Command {
	var flags purgeFlags
	long := `Drop all jobs of one flow that wait, for good. There is no way back. None of them
departs from the first moment on; what is in flight is left, and jobs that come
meanwhile are not touched. The flow's name has to be typed to confirm; where there is
no terminal, --yes says so instead. With --dry-run the jobs are only counted.`
	if p.kind == "group" {
		long = `Drop all jobs of one group that wait, for good. There is no way back. It goes flow by
flow, and none of a flow departs from its moment on; what is in flight is left, and jobs
that come meanwhile are not touched. The group's name has to be typed to confirm; where
there is no terminal, --yes says so instead. With --dry-run the jobs are only counted.`
	}
	cmd := &cobra.Command{
		Use:   "purge BUCKET " + p.arg(),
		Short: p.text("Drop all waiting jobs of one $"),
		Long:  long,
		Example: p.text(`  dispatcher $ purge webhooks acme
  dispatcher $ purge webhooks acme --dry-run
  dispatcher $ purge webhooks acme --keep-later --yes`),
		Args: positional("BUCKET", p.arg()),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := p.purge(cmd, flags, p.kind, args[0], args[1], func(ctx context.Context, c *api, request httpapi.PurgeRequest) (*opsview.Purge, error) {
				return call(ctx, c, p.ops.Purge, httpapi.PartPurge[N]{Part: p.one(cmd, args), PurgeRequest: request})
			})
			return p.fault(err, args[0], args[1])
		},
	}
	flags.add(cmd)
	return cmd
}
