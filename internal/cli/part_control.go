package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// on makes the RunE of a command on the flow or group named behind BUCKET: a request to its address, below it. The command prints
// what say makes of the answer. Without a say, or with --json, it prints the flow or group after the change.
func (p *parts) on(method, below string, ask partRequest, say partSays) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		bucket, name := args[0], args[1]
		query, body, err := ask(cmd, args)
		if err != nil {
			return err
		}
		return p.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			view := p.New()
			if err := c.call(ctx, method, apiPath("buckets", bucket, p.Name)+below, query, body, view); err != nil {
				return p.fault(err, bucket, name)
			}
			if say == nil {
				return p.printOne(view)
			}
			said, err := say(view, args)
			switch {
			case err != nil:
				return err
			case p.json:
				return p.printOne(view)
			case view.Alike().Unknown && view.Alike().Changed != nil && !*view.Alike().Changed:
				said += "\n" + p.unknownText(view)
			}
			return p.print(nil, func(w io.Writer) { fmt.Fprintln(w, said) })
		})
	}
}

// partSays is what a command says of a change.
type partSays func(v opsview.View, args []string) (string, error)

// partRequest makes the query and the body of a request of a command line.
type partRequest func(cmd *cobra.Command, args []string) (url.Values, any, error)

// just asks for the flow or group, and says nothing else.
func (p *parts) just(cmd *cobra.Command, args []string) (url.Values, any, error) {
	return p.query(cmd, args[1]), nil, nil
}

// createFlag gives a command that changes one its --create.
func (p *parts) createFlag(cmd *cobra.Command, create *bool) {
	cmd.Flags().BoolVar(create, "create", false, p.text("also where the bucket has no $ of this name now: before its first job"))
}

// orCreate lets a request change a flow or group that the bucket does not have now.
func (p *parts) orCreate(query url.Values, create bool) url.Values {
	if create {
		query.Set("create", "true")
	}
	return query
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
	cmd.RunE = p.on(http.MethodPost, "/pause", func(cmd *cobra.Command, args []string) (url.Values, any, error) {
		return p.orCreate(p.query(cmd, args[1]), create), because(reason), nil
	}, func(_ opsview.View, args []string) (string, error) { return "paused: " + quoted(args[1]), nil })
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
	cmd.RunE = p.on(http.MethodPost, "/resume", p.just, func(v opsview.View, args []string) (string, error) {
		return resumedText(v.Alike().Outcome, quoted(args[1])), nil
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
	cmd.RunE = p.on(http.MethodPost, "/release", p.just, func(v opsview.View, args []string) (string, error) {
		return releasedText(v.Alike().Outcome, quoted(args[1])), nil
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
	cmd.RunE = p.on(http.MethodPost, "/enable", func(cmd *cobra.Command, args []string) (url.Values, any, error) {
		query := p.query(cmd, args[1])
		query.Set("redrive", strconv.FormatBool(redrive))
		return query, nil, nil
	}, func(v opsview.View, args []string) (string, error) {
		said := "was not disabled: " + quoted(args[1])
		if deref(v.Alike().Changed) {
			said = "enabled: " + quoted(args[1])
		}
		redriven := v.(*opsview.EnabledFlow).Redriven //nolint:forcetypeassert // only flows are enabled
		if redriven == nil {
			return said, nil
		}
		said += fmt.Sprintf("\nredriven: %s", opsview.Count(redriven.Moved, "job"))
		if redriven.Full > 0 {
			return "", fail(exitRefused, "%s; the bucket or the %s is full, and the rest stays dead: use `%s dead redrive %s --all` when there is room",
				strings.ReplaceAll(said, "\n", "; "), p.Name, p.program, args[0])
		}
		return said, nil
	})
	cmd.Flags().BoolVar(&redrive, "redrive", false, "put the jobs back that became dead letters because it was disabled")
	return cmd
}

// flags are the settings that `flow set` and `group set` take as one value each. Headers and secrets have no help in their tags: they
// have flags of their own, which name files and variables, so that no credential is on the command line.
func (p *parts) flags() []*setting.Key {
	return slices.DeleteFunc(setting.Changes(reflect.TypeFor[shaper.OwnFlow]()), func(k *setting.Key) bool {
		return k.Help == "" || !slices.Contains(p.Settings, shaper.FlowSetting(k.Path))
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

func (p *parts) setCommand() *cobra.Command {
	var own ownDelivery
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
	addSettings(cmd, p.flags())
	if slices.Contains(p.Settings, shaper.FlowHeaders) {
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
		return p.on(http.MethodPatch, "", func(cmd *cobra.Command, args []string) (url.Values, any, error) {
			return p.orCreate(p.query(cmd, args[1]), create), patch, nil
		}, nil)(cmd, args)
	}
	p.createFlag(cmd, &create)
	return cmd
}

// patchOf makes the body of a patch of the flags that are given.
func (p *parts) patchOf(cmd *cobra.Command, own *ownDelivery) (body map[string]any, err error) {
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

func (p *parts) resetCommand() *cobra.Command {
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
			return p.on(http.MethodPatch, "", p.clear, func(_ opsview.View, args []string) (string, error) { return "reset: " + quoted(args[1]), nil })(cmd, args)
		}
		return p.on(http.MethodDelete, "-settings", p.just, func(v opsview.View, args []string) (string, error) {
			if !deref(v.Alike().Changed) {
				return "had no settings of its own: " + quoted(args[1]), nil
			}
			return "reset: " + quoted(args[1]), nil
		})(cmd, args)
	}
	return cmd
}

// clear makes a patch that removes the settings that are named behind BUCKET and FLOW.
func (p *parts) clear(cmd *cobra.Command, args []string) (url.Values, any, error) {
	body := map[string]any{}
	for _, name := range args[2:] {
		if !slices.Contains(p.Settings, shaper.FlowSetting(name)) {
			return nil, nil, wrongUsage(cmd, "%s: is no setting of a %s: want %s", line(name, 40), p.Name, p.settingNames())
		}
		body[name] = nil
	}
	return p.orCreate(p.query(cmd, args[1]), true), body, nil
}

func (p *parts) settingNames() string {
	names := make([]string, len(p.Settings))
	for i, setting := range p.Settings {
		names[i] = string(setting)
	}
	return strings.Join(names, ", ")
}

func (p *parts) purgeCommand() *cobra.Command {
	var flags purgeFlags
	long := `Drop all jobs of one flow that wait, for good. There is no way back. None of them
departs from the first moment on; what is in flight is left, and jobs that come
meanwhile are not touched. The flow's name has to be typed to confirm; where there is
no terminal, --yes says so instead. With --dry-run the jobs are only counted.`
	if p.Name == "group" {
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
			err := p.purge(cmd, flags, p.Name, args[0], args[1], apiPath("buckets", args[0], p.Name, "purge"), p.query(cmd, args[1]))
			return p.fault(err, args[0], args[1])
		},
	}
	flags.add(cmd)
	return cmd
}
