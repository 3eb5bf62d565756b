package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) bucketListCommand() *cobra.Command {
	var diff bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all buckets with their numbers",
		Long: `List all buckets: first the configured ones, in the order of the configuration, then
the orphaned ones, which left the configuration and may still hold jobs.

DEPTH counts unfinished jobs (waiting, in flight, retrying) against the
capacity. LATER are delayed jobs and retries that wait for their time. OLDEST is
the age of the job at the head. POOL is the pool of the bucket, if it has one.

With --diff, list instead the settings whose value in force differs from the
configuration here: why, and the author and time of the change.`,
		Example: `  dispatcher bucket list
  dispatcher bucket list --diff
  dispatcher bucket list --json | jq '.[] | select(.dead > 0).name'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if diff {
				return a.withStation(cmd.Context(), a.bucketDiff)
			}
			return a.withStation(cmd.Context(), a.bucketList)
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false, "list where buckets differ from the configuration")
	return cmd
}

func (a *app) bucketList(ctx context.Context, s *station) error {
	views, err := s.bucketViews(ctx)
	if err != nil {
		return err
	}
	if len(views) == 0 && !a.json {
		a.note("there are no buckets: declare one as [[buckets]] in the configuration")
		return nil
	}
	return a.print(views, func(w io.Writer) {
		title, pooled := "", slices.ContainsFunc(views, func(v bucketView) bool { return v.Pool != nil })
		if pooled {
			title = "POOL\t"
		}
		fmt.Fprintf(w, "BUCKET\tRATE\tDEPTH\tIN FLIGHT\tLATER\tDEAD\tOLDEST\t%sNOTE\n", title)
		for _, v := range views {
			pool := ""
			if pooled {
				pool = dash(v.poolText()) + "\t"
			}
			fmt.Fprintf(w, "%s\t%s\t%d/%d\t%d/%d\t%d\t%d\t%s\t%s%s\n", v.Name, v.Rate, v.Depth, v.Capacity,
				v.InFlight, v.MaxInFlight, v.Later, v.Dead, v.oldest(), pool, dash(strings.Join(v.Notes, "; ")))
		}
	})
}

// poolText is the bucket's pool in short, "" if it is in none.
func (v *bucketView) poolText() string {
	if v.Pool == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s, %s", v.Pool.Name, dash(v.Pool.Rate), v.Pool.Bound())
}
