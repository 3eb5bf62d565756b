package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *invocation) limitCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "limit",
		Short: "Look at limits and change them",
		Long: `Look at limits: what callers may enqueue, and what the check endpoint lets pass. Change one
while it runs: all processes obey within a second, and after every restart.`,
		Example: `  dispatcher limit list
  dispatcher limit show per-caller --json
  dispatcher limit refusals per-caller
  dispatcher limit set per-caller --limit 200/m
  dispatcher limit set per-caller --mode shadow
  dispatcher limit reset per-caller`,
	}, a.limitListCommand(), a.limitShowCommand(), a.limitRefusalsCommand(), a.limitSetCommand(), a.limitResetCommand()))
}

func theLimit(args []string) httpapi.LimitName { return httpapi.LimitName{Limit: args[0]} }

func (a *invocation) limitListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List all limits, as they are in force",
		Long: `List the limits of the configuration, as they are in force. PER is what they count separately
by. NOTE says where an operator has changed one, and where one is in shadow mode.`,
		Example: `  dispatcher limit list
  dispatcher limit list --json | jq '.[] | select(.override).name'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.withAPI(cmd.Context(), a.limitList) },
	})
}

func (a *invocation) limitList(ctx context.Context, c *api) error {
	list, err := call(ctx, c, httpapi.ListLimits, struct{}{})
	if err != nil {
		return err
	}
	empty := "there are no limits: declare one as [[limits]] in the configuration, and name it in the limits of buckets"
	if c.readNone() {
		empty = noConfiguration
	}
	return a.printList(len(list.Limits), empty, list.Limits, func(w io.Writer) {
		fmt.Fprintln(w, "LIMIT\tALLOWS\tPER\tALGORITHM\tNOTE")
		for _, v := range list.Limits {
			l := v.InForce
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", v.Name, allows(l), perText(l), l.Algorithm, dash(strings.Join(limitNotes(v), "; ")))
		}
	})
}

// allows describes how much a limit allows.
func allows(l *admission.Limit) string {
	if l.Algorithm.HasBurst() && l.Burst != l.Limit.Count {
		return fmt.Sprintf("%s, burst %d", l.Limit, l.Burst)
	}
	return l.Limit.String()
}

func perText(l *admission.Limit) string {
	if len(l.Per) == 0 {
		return "all together"
	}
	return strings.Join(l.Per, " and ")
}

func limitNotes(v *httpapi.LimitView) (notes []string) {
	if v.Override != nil && v.Configured != nil {
		notes = append(notes, "changed by an operator; configured: "+allows(v.Configured))
	}
	if v.InForce.Mode == admission.Shadow {
		notes = append(notes, "shadow: refuses nothing")
	}
	return notes
}

func (a *invocation) limitShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one limit in full",
		Long:  "Show one limit in full, as it is in force and as it is configured.",
		Example: `  dispatcher limit show per-caller
  dispatcher limit show per-caller --json`,
		Args: positional("NAME"),
		RunE: show(a, "limit", httpapi.ShowLimit, asking(theLimit), printLimit),
	})
}

func printLimit(w io.Writer, v *httpapi.LimitView) {
	r, l := rows{w, time.Now()}, v.InForce
	r.row("limit", "%s", v.Name)
	r.row("allows", "%s", allows(l))
	r.row("per", "%s", perText(l))
	for _, one := range l.Per {
		r.row("", "%s: %s", one, identityText(one))
	}
	lacks := map[admission.OnMissing]string{
		admission.Refuse: "a request that lacks one is refused (400)", admission.Share: "all requests that lack one count together",
		admission.Exempt: "a request that lacks one is not counted",
	}
	if text := lacks[l.OnMissing]; text != "" && len(l.Per) > 0 {
		r.row("on_missing", "%s", text)
	}
	r.row("algorithm", "%s", l.Algorithm)
	for _, tier := range slices.Sorted(maps.Keys(l.Tiers)) {
		r.row("tier", "%s: %s", tier, l.Tiers[tier])
	}
	r.row("mode", "%s", l.Mode)
	r.row("without Redis", "%s", l.OnStoreFailure)
	r.notes(limitNotes(v))
}

// identityText names the requests that have the key of a limit, so that a limit whose key no request has is visible.
func identityText(per string) string {
	switch per {
	case "caller":
		return "the name of the API key (its caller, where it has one), else the client's address"
	case "ip":
		return "the address of the client, by producer.trusted_proxies"
	case "flow":
		return "the flow of the job, in a bucket with flows; the check endpoint has to name it"
	}
	if name, isHeader := strings.CutPrefix(per, "header:"); isHeader {
		return fmt.Sprintf("what requests send as %q: a program that does not send it lacks it", name)
	}
	return "as the request names it"
}

func (a *invocation) limitSetCommand() *cobra.Command {
	var patch limitFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "set NAME --SETTING VALUE...",
		Short: "Change a limit while it runs",
		Long: `Change a limit, in all processes within a second, and across restarts. The change overrides all
configurations until it is reset. The limit keeps its state: a caller that has spent more than a
lowered limit allows exceeds it at once. If only --limit changes, the burst is scaled alike.`,
		Example: `  dispatcher limit set per-caller --limit 200/m
  dispatcher limit set per-caller --burst 500
  dispatcher limit set per-caller --tier pro=6000/m
  dispatcher limit reset per-caller`,
		Args: positional("NAME"),
		RunE: on(a, "limit", httpapi.ChangeLimit, func(cmd *cobra.Command, args []string) (httpapi.LimitPatch, error) {
			body, err := patch.body(cmd)
			return httpapi.LimitPatch{LimitName: theLimit(args), Patch: body}, err
		}, func(v *httpapi.LimitView) string {
			return limitText(v) + "\n" + a.backText("configuration", "limit reset "+v.Name)
		}),
	})
	f := cmd.Flags()
	f.StringVar(&patch.Limit, "limit", "", "refill or number in a window, a `rate` such as 200/m")
	f.Int64Var(&patch.Burst, "burst", 0, "`number` of requests at once, of a token bucket")
	f.StringVar(&patch.Mode, "mode", "", "enforce or shadow, a `word`: a limit in shadow mode refuses nothing, and counts what it would refuse")
	f.StringToStringVar(&patch.Tiers, "tier", nil, "`name=rate` for callers of a tier that the limit has; may be repeated")
	return cmd
}

// limitFlags are the flags of `limit set`, and the body of the request.
type limitFlags struct {
	Limit string            `json:"limit,omitempty"`
	Burst int64             `json:"burst,omitempty"`
	Mode  string            `json:"mode,omitempty"`
	Tiers map[string]string `json:"tiers,omitempty"`
}

func (f *limitFlags) body(cmd *cobra.Command) (json.RawMessage, error) {
	if f.Burst < 1 && cmd.Flags().Changed("burst") {
		return nil, wrongUsage(cmd, "--burst %d: want 1 or more", f.Burst)
	}
	if f.Limit == "" && f.Burst == 0 && f.Mode == "" && len(f.Tiers) == 0 {
		return nil, wrongUsage(cmd, "nothing is changed: give --limit or another setting")
	}
	return json.Marshal(f)
}

func limitText(v *httpapi.LimitView) string {
	text := fmt.Sprintf("limit %s allows %s", v.Name, allows(v.InForce))
	if v.InForce.Mode == admission.Shadow {
		text += ", in shadow mode: it refuses nothing"
	}
	return text
}

func (a *invocation) limitResetCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "reset NAME",
		Short: "Return to the configured limit",
		Long: `Remove the changes of ` + "`limit set`" + `, so that the configuration is in force again. To reset a
limit that was not changed is harmless.`,
		Example: `  dispatcher limit reset per-caller`,
		Args:    positional("NAME"),
		RunE:    on(a, "limit", httpapi.ResetLimit, asking(theLimit), limitText),
	})
}

func (a *invocation) limitRefusalsCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "refusals LIMIT",
		Short: "Show the callers that a limit refused most in the last ten minutes",
		Long: `Show the callers that a limit refused most in the last ten minutes, in buckets and in checks of the
limit alone, by all processes. Processes count in memory and report within five seconds: a refusal
writes nothing.`,
		Example: `  dispatcher limit refusals per-caller
  dispatcher limit refusals per-caller --json | jq -r '.callers[0].caller'`,
		Args: positional("LIMIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				v, err := call(ctx, c, httpapi.ShowRefusals, httpapi.LimitName{Limit: args[0]})
				if err != nil {
					return err
				}
				empty := fmt.Sprintf("limit %q refused nobody in the last ten minutes, as far as is known: processes report it within five seconds", args[0])
				return a.printList(len(v.Callers)+int(v.Others), empty, v, func(w io.Writer) {
					fmt.Fprintln(w, "REFUSED\tCALLER")
					for _, caller := range v.Callers {
						fmt.Fprintf(w, "%d\t%s\n", caller.Refused, line(caller.Caller, 200))
					}
					if v.Others > 0 {
						fmt.Fprintf(w, "%d\tothers\n", v.Others)
					}
				})
			})
		},
	})
}
