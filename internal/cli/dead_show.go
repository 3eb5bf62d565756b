package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) deadShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show BUCKET ID",
		Short:   "Show one dead letter in full",
		Long:    "Show one dead letter in full: why it died, how its last attempts ended, its last response and its payload.",
		Example: `  dispatcher dead show webhooks order-17`,
		Args:    positional("BUCKET", "ID"),
		RunE: a.onJob(func(ctx context.Context, c *api, bucket, id string) error {
			view, err := c.job(ctx, bucket, id)
			if err != nil {
				return err
			}
			if view.State != shaper.StateDead {
				return fail(exitNotFound, "job %q in bucket %q is no dead letter: it is %s", id, bucket, view.State)
			}
			return a.printJob(view, "")
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
