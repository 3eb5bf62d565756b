package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) deadListCommand() *cobra.Command {
	var limit, offset int
	cmd := &cobra.Command{
		Use:   "list BUCKET",
		Short: "List dead letters, the newest first",
		Long:  "List dead letters, the newest first, with why they died.",
		Example: `  dispatcher dead list webhooks
  dispatcher dead list webhooks --limit 100 --offset 100
  dispatcher dead list webhooks --json | jq -r '.[].last_response.reason' | sort | uniq -c`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10_000 || offset < 0 {
				return wrongUsage(cmd, "want a --limit of 1 to 10000 and an --offset of 0 or more")
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				return a.deadList(ctx, s, args[0], offset, limit)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most this `number`")
	cmd.Flags().IntVar(&offset, "offset", 0, "leave out this `number` of the newest")
	return cmd
}

func (a *app) deadList(ctx context.Context, s *station, bucket string, offset, limit int) error {
	letters, err := s.operator.Bucket(bucket).Dead().List(ctx, offset, limit)
	if err != nil {
		return err
	}
	buckets, err := s.bucketViews(ctx, bucket)
	if err != nil {
		return err
	}
	views := make([]jobView, len(letters))
	for i, letter := range letters {
		views[i] = viewJob(letter)
	}
	if len(views) == 0 && !a.json {
		a.note("bucket %q has %s", bucket, count(buckets[0].Dead, "dead letter"))
		return nil
	}
	now := time.Now()
	err = a.print(views, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tDIED\tATTEMPTS\tCAUSE\tREASON\tDETAIL")
		for _, letter := range letters {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", letter.ID, relative(letter.Died, now), letter.Attempts,
				dash(letter.Last.Cause), dash(letter.Last.Reason), dash(line(letter.Last.Detail, 60)))
		}
	})
	if more := buckets[0].Dead - int64(offset+len(letters)); more > 0 && !a.json {
		a.note("%d more: --offset %d", more, offset+len(letters))
	}
	return err
}
