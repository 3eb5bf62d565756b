package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) bucketCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "bucket",
		Short: "Look at buckets, pause, change or purge them",
		Long: `Look at buckets: their jobs and their rate. Pause, change or purge them while they
run. All processes obey at once, and after every restart.`,
		Example: `  dispatcher bucket list
  dispatcher bucket show webhooks --json
  dispatcher bucket pause webhooks --reason "the receiver is down"
  dispatcher bucket set webhooks --rate 20/s
  dispatcher bucket release webhooks
  dispatcher bucket list --diff`,
		SuggestFor: []string{"drain"}, // was a command of its own
	}, a.bucketListCommand(), a.bucketShowCommand(), a.bucketWhyCommand(), a.bucketHistoryCommand(), a.bucketTimetableCommand(), a.bucketPauseCommand(), a.bucketResumeCommand(), a.bucketReleaseCommand(),
		a.bucketDrainCommand(), a.bucketSetCommand(), a.bucketResetCommand(), a.bucketPurgeCommand()))
}

func (a *invocation) bucketListCommand() *cobra.Command {
	var diff bool
	var query httpapi.BucketsQuery
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List all buckets with their numbers",
		Long: `List all buckets: first the configured ones, in the order of the configuration, then
the orphaned ones, which left the configuration and may still hold jobs.

DEPTH counts unfinished jobs (waiting, in flight, retrying) against the
capacity. LATER are delayed jobs and retries that wait for their time; a bucket with flows
does not count them apart from those that wait, and shows "-". OLDEST is the age
of the job at the head. POOL is the pool of the bucket, if it has one. STATE is the verdict:
sends, empty, closed and when it opens, or what keeps most jobs ("bucket why").

Of many buckets, choose some with --match, --sort and --limit: a note then sums up all.

With --diff, list instead the settings whose value in force differs from the
configuration here: why, and the author and time of the change. Then follow the
processes whose configuration differs, which name themselves every 10 seconds.`,
		Example: `  dispatcher bucket list
  dispatcher bucket list --match mail --sort waiting --limit 20
  dispatcher bucket list --diff
  dispatcher bucket list --json | jq '.[] | select(.dead > 0).name'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if diff {
				return a.withAPI(cmd.Context(), a.bucketDiff)
			}
			if query.Limit < 1 && cmd.Flags().Changed("limit") {
				return wrongUsage(cmd, "--limit %d: want 1 to 1000", query.Limit)
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.bucketList(ctx, c, query) })
		},
	})
	cmd.Flags().StringVar(&query.Q, "match", "", "buckets with this `text` in their names")
	cmd.Flags().StringVar(&query.Sort, "sort", "", "by name, or the largest first by waiting, in_flight, dead or oldest, or those with notes first, a `word` (default: as the configuration has them)")
	cmd.Flags().IntVar(&query.Limit, "limit", 0, "at most this `number` of them (default: all)")
	cmd.Flags().StringVar(&query.Cursor, "cursor", "", "go on behind the `text` that a list with --limit has named")
	cmd.Flags().BoolVar(&diff, "diff", false, "list where buckets differ from the configuration")
	return cmd
}

func (a *invocation) bucketList(ctx context.Context, c *api, query httpapi.BucketsQuery) error {
	list, err := call(ctx, c, httpapi.ListBuckets, query)
	if err != nil {
		return err
	}
	views := list.Buckets
	if t := list.Totals; t != nil {
		next := ""
		if list.Next != "" {
			next = "; go on with --cursor " + list.Next
		}
		defer func() {
			a.note("%d of %s: %s, %s%s", len(views), opsview.Count(t.Buckets, "bucket"), opsview.Count(t.Unfinished, "unfinished job"), opsview.Count(t.Dead, "dead letter"), next)
		}()
	}
	empty := "there are no buckets: declare one as [[buckets]] in the configuration"
	if query != (httpapi.BucketsQuery{}) {
		empty = "no bucket is chosen: change --match or --cursor"
	}
	return a.printList(len(views), empty, views, func(w io.Writer) {
		title, pooled := "", slices.ContainsFunc(views, func(v *opsview.Bucket) bool { return v.Pool != nil })
		if pooled {
			title = "POOL\t"
		}
		fmt.Fprintf(w, "BUCKET\tRATE\tDEPTH\tIN FLIGHT\tLATER\tDEAD\tOLDEST\t%sSTATE\tNOTE\n", title)
		for _, v := range views {
			pool := ""
			if pooled {
				pool = dash(poolText(v)) + "\t"
			}
			fmt.Fprintf(w, "%s\t%s\t%d/%d\t%d/%d\t%s\t%d\t%s\t%s%s\t%s\n", v.Name, v.Rate, v.Unfinished, v.Capacity,
				v.InFlight, v.MaxInFlight, laterText(v), v.Dead, oldest(v), pool, v.Verdict.State, dash(strings.Join(v.Notes, "; ")))
		}
	})
}

// laterText returns how many jobs wait for their time: delayed ones, and retries. A bucket with flows counts them among those that wait.
func laterText(v *opsview.Bucket) string {
	if v.Flows != nil {
		return "-"
	}
	return fmt.Sprint(v.Later)
}

// poolText is the bucket's pool in short, "" if it is in none.
func poolText(v *opsview.Bucket) string {
	if v.Pool == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s, %s", v.Pool.Name, dash(v.Pool.Rate), v.Pool.Bound())
}

func (a *invocation) bucketDiff(ctx context.Context, c *api) error {
	views, err := c.buckets(ctx)
	if err != nil {
		return err
	}
	list := []opsview.Difference{}
	for i := range views {
		list = append(list, views[i].Differences...)
	}
	return a.printList(len(list), "every bucket is as the configuration here says, and no process that runs says otherwise", list, func(w io.Writer) {
		fmt.Fprintln(w, "BUCKET\tSETTING\tCONFIGURED\tIN FORCE\tWHY")
		for _, d := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.Bucket, d.Setting, dash(d.Configured), d.InForce, d.Why)
		}
	})
}
