package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) deadListCommand() *cobra.Command {
	var limit, offset int
	var filter deadFilter
	var after string
	cmd := &cobra.Command{
		Use:   "list BUCKET",
		Short: "List dead letters, the newest first",
		Long: `List dead letters, the newest first, with why they died. With a filter, those that it
means: all of what is given has to hold. ATTEMPTS counts those that spent one of
max_attempts since the job was last put back. Receivers and handlers are told another
number: that of the delivery, which counts all from the beginning on.`,
		Example: `  dispatcher dead list webhooks
  dispatcher dead list webhooks --limit 100 --offset 100
  dispatcher dead list webhooks --cause attempts-exhausted --flow acme --since 2h
  dispatcher dead list webhooks --json | jq -r '.[].id'`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10_000 || offset < 0 {
				return wrongUsage(cmd, "want a --limit of 1 to 10000 and an --offset of 0 or more")
			}
			filtered, err := filter.read(cmd)
			if err != nil {
				return err
			}
			if filtered = filtered || after != ""; filtered && offset > 0 {
				return wrongUsage(cmd, "--offset counts all dead letters: go on behind a filter with --after")
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				if filtered {
					return a.deadFind(ctx, c, args[0], filter.DeadFilter, after, limit)
				}
				return a.deadList(ctx, c, args[0], offset, limit)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most this `number`")
	cmd.Flags().IntVar(&offset, "offset", 0, "leave out this `number` of the newest")
	cmd.Flags().StringVar(&after, "after", "", "go on behind the `cursor` that an earlier list has told")
	filter.flags(cmd)
	return cmd
}

func (a *invocation) deadList(ctx context.Context, c *api, bucket string, offset, limit int) error {
	letters := []*opsview.Job{}
	for len(letters) < limit {
		n := min(limit-len(letters), pageOfJobs)
		page, err := c.dead(ctx, httpapi.DeadQuery{BucketName: httpapi.BucketName{Bucket: bucket}, Page: httpapi.Page{Limit: n}, Offset: new(offset + len(letters))})
		if err != nil {
			return err
		}
		if letters = append(letters, page.Dead...); len(page.Dead) == 0 {
			break
		}
	}
	view, err := c.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	if len(letters) == 0 && !a.json {
		a.note("bucket %q has %s", bucket, opsview.Count(view.Dead, "dead letter"))
		return nil
	}
	err = a.printDead(letters)
	if more := view.Dead - int64(offset+len(letters)); more > 0 && !a.json {
		a.note("%d more: --offset %d", more, offset+len(letters))
	}
	return err
}
