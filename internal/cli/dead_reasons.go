package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *invocation) deadReasonsCommand() *cobra.Command {
	var filter deadFilter
	cmd := &cobra.Command{
		Use:   "reasons BUCKET",
		Short: "Sum up why jobs died",
		Long: `Sum up why jobs died: how many dead letters have which cause, reason and status, those of
most letters first. With a filter, of those that it means. Redrive or drop one line
of it with the same words as flags.`,
		Example: `  dispatcher dead reasons webhooks
  dispatcher dead reasons webhooks --since 2h
  dispatcher dead redrive webhooks --reason http_500 --status 503`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := filter.read(cmd); err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.deadReasons(ctx, c, args[0], filter.DeadFilter) })
		},
	}
	a.jsonFlag(cmd)
	filter.flags(cmd)
	return cmd
}

func (a *invocation) deadReasons(ctx context.Context, c *api, bucket string, filter operator.DeadFilter) error {
	type key struct {
		cause, reason string
		status        int
	}
	at, reasons := map[key]int{}, []operator.DeadReason{}
	query := httpapi.DeadReasonsQuery{BucketName: httpapi.BucketName{Bucket: bucket}, DeadFilter: filter}
	for {
		part, err := call(ctx, c, httpapi.ShowDeadReasons, query)
		if err != nil {
			return named(err, "bucket", bucket)
		}
		for _, one := range part.Reasons {
			k := key{one.Cause, one.Reason, one.Status}
			if i, known := at[k]; known {
				reasons[i].Letters, reasons[i].Oldest = reasons[i].Letters+one.Letters, one.Oldest
				continue
			}
			at[k] = len(reasons)
			reasons = append(reasons, one)
		}
		if query.Cursor = part.Next; query.Cursor == "" {
			break
		}
	}
	slices.SortStableFunc(reasons, func(a, b operator.DeadReason) int { return cmp.Compare(b.Letters, a.Letters) })
	if len(reasons) == 0 && !a.json {
		a.note("bucket %q has no such dead letters", bucket)
		return nil
	}
	now := time.Now()
	return a.print(reasons, func(w io.Writer) {
		fmt.Fprintln(w, "LETTERS\tCAUSE\tREASON\tSTATUS\tOLDEST\tNEWEST")
		for _, one := range reasons {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", one.Letters, dash(one.Cause), dash(one.Reason), dash(statusText(one.Status)), since(&one.Oldest, now), since(&one.Newest, now))
		}
	})
}

// statusText returns an HTTP status, "" without one.
func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprint(status)
}
