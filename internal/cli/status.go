package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// statusEvery is the interval at which a watched status is drawn again.
const statusEvery = 2 * time.Second

func (a *invocation) statusCommand() *cobra.Command {
	var check, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show all buckets on one screen, problems first",
		Long: `Show what people should look at, each with the command that helps: buckets that do not deliver as
their rate says, and what keeps their jobs (see bucket why), that are paused or full, dead letters
above dead_warn. Then a line for each bucket. SEEN is how many requests left it a second in the last ten seconds. MINUTE is a picture
of the last minute: a bar at half height is its rate. LATER counts delayed jobs and retries that wait
for their time; with flows they are among those WAITING. FAILING counts flows whose receivers keep them
from sending; LEFT is what is left of the bucket's quota or budget that is used up most ("flow list"
has LEFT of each flow). STATE is the verdict: sends, empty, closed and when it opens, or what keeps most
jobs.

With --watch the screen is refreshed every two seconds, until Ctrl-C. With --check, the exit
code is 1 where there is a problem, for scripts and monitors.`,
		Example: `  dispatcher status
  dispatcher status --watch
  dispatcher status --check || echo "look at Tundish"
  dispatcher status --json | jq .notes`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && (a.json || check) {
				return wrongUsage(cmd, "--watch is for a terminal: leave out --json and --check")
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				if watch {
					return a.watchStatus(ctx, c)
				}
				return a.status(ctx, c, check)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "exit with 1 where Redis or a bucket has a problem")
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh it every two seconds")
	return a.serverFlags(cmd)
}

func (a *invocation) status(ctx context.Context, c *api, check bool) error {
	v, err := call(ctx, c, httpapi.ShowStatus, httpapi.StatusQuery{Help: true})
	if err != nil {
		return err
	}
	if a.json {
		err = writeJSON(a.out, v)
	} else {
		err = a.statusScreen(ctx, c, v)
	}
	if err == nil && check && v.Redis != "" {
		return fail(exitFailed, "%s", v.Redis)
	}
	if err == nil && check && len(v.Notes) > 0 {
		return fail(exitFailed, "%s with notes", opsview.Count(len(v.Notes), "bucket"))
	}
	return err
}

// watchStatus draws the screen until ctx ends.
func (a *invocation) watchStatus(ctx context.Context, c *api) error {
	for ctx.Err() == nil {
		v, err := call(ctx, c, httpapi.ShowStatus, httpapi.StatusQuery{Help: true})
		if err == nil {
			if isTerminal(a.out) {
				fmt.Fprint(a.out, "\x1b[H\x1b[2J") // from the top of an empty screen
			}
			err = a.statusScreen(ctx, c, v)
		}
		if err == nil {
			err = pause(ctx, statusEvery)
		}
		if err != nil && ctx.Err() == nil { // not Ctrl-C
			return err
		}
	}
	return nil
}

// statusScreen writes the sum, the problems, and a line for each bucket.
func (a *invocation) statusScreen(ctx context.Context, c *api, v *httpapi.Status) error {
	buckets, err := c.buckets(ctx)
	if err != nil {
		return err
	}
	seen, err := call(ctx, c, httpapi.ShowFleet, httpapi.FleetQuery{Buckets: true})
	if err != nil {
		return err
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: %s, %d of them in flight; %s\n",
		opsview.Count(v.Buckets, "bucket"), opsview.Count(v.Unfinished, "unfinished job"), v.InFlight, opsview.Count(v.Dead, "dead letter"))
	if v.Redis != "" {
		fmt.Fprintf(b, "\n%s\n", a.highlighted(v.Redis+"  dispatcher doctor"))
	}
	if len(v.Notes) > 0 {
		list := &strings.Builder{}
		aligned(list, func(w io.Writer) { problems(w, v.Notes) })
		fmt.Fprintf(b, "\n%s", a.highlighted(list.String()))
	}
	if notices := fleet.Notices(seen.Processes); len(notices) > 0 {
		fmt.Fprintf(b, "\n%s\n", a.highlighted(strings.Join(notices, "\n")))
	}
	if len(buckets) > 0 {
		fmt.Fprintln(b)
		aligned(b, func(w io.Writer) { statusTable(w, buckets, seen.Buckets) })
	}
	_, err = io.WriteString(a.out, b.String())
	return err
}

func aligned(b *strings.Builder, write func(w io.Writer)) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	write(w)
	_ = w.Flush() // a strings.Builder takes everything
}

// problems writes each note with the command that helps.
func problems(w io.Writer, list []httpapi.BucketNotes) {
	for _, b := range list {
		for i, note := range b.Notes {
			help := "" // without a tab before it, so that nothing pads the note
			if i < len(b.Help) && b.Help[i] != "" {
				help = "\tdispatcher " + b.Help[i]
			}
			fmt.Fprintf(w, "%s\t%s%s\n", b.Bucket, note, help)
		}
	}
}

func statusTable(w io.Writer, buckets []*opsview.Bucket, seen map[string]*httpapi.Traffic) {
	fmt.Fprintln(w, "BUCKET\tRATE\tSEEN\tMINUTE\tWAITING\tLATER\tOLDEST\tIN FLIGHT\tDEAD\tFAILING\tLEFT\tSTATE")
	byProblems := func(a, b *opsview.Bucket) int { return min(len(b.Notes), 1) - min(len(a.Notes), 1) }
	for _, v := range slices.SortedStableFunc(slices.Values(buckets), byProblems) {
		rate, minute := seenOf(v, seen[v.Name])
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", v.Name, dash(v.Rate), rate, minute, v.Waiting, laterText(v), oldest(v), v.InFlight, v.Dead, failing(v), dash(v.Left()), v.Verdict.State)
	}
}

// seenOf returns the observed rate of a bucket and a picture of its last minute. Both are "" if no process reports the bucket.
func seenOf(v *opsview.Bucket, t *httpapi.Traffic) (rate, minute string) {
	if t == nil {
		return "-", "-"
	}
	asked := 0.0
	if r, err := admission.ParseRate(v.Rate); err == nil {
		asked = float64(r.Count) / r.Per.Seconds() * fleet.HeartbeatInterval.Seconds()
	}
	return fmt.Sprintf("%.3g/s", t.Rate), "|" + picture(t.Minute, 2*asked) + "|" //nolint:mnd // see the help
}

// failing returns how many flows send nothing because of their receivers.
func failing(v *opsview.Bucket) string {
	if v.Flows == nil {
		return "-"
	}
	return fmt.Sprint(v.Flows.Held + v.Flows.Open + v.Flows.HalfOpen + v.Flows.Disabled)
}
