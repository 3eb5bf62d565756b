package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) jobShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show BUCKET ID",
		Short: "Show a job: state, position, ETA, attempts, last response",
		Long: `Show a job: its state and why it waits, position and ETA, how its last attempts ended,
the last response, and its payload. Headers with the name of a credential, such as Authorization, are
shown as "***". Of a settled job only the state is known, until its dedupe window
ends.`,
		Example: `  dispatcher job show webhooks order-17
  dispatcher job show webhooks order-17 --json | jq .payload`,
		Args: positional("BUCKET", "ID"),
		RunE: a.onJob(func(ctx context.Context, c *api, bucket, id string) error {
			view, err := c.job(ctx, bucket, id)
			if err != nil {
				return err
			}
			return a.printJob(view)
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
