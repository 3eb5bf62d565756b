package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) jobShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show BUCKET ID",
		Short: "Show a job: state, position, ETA, attempts, last response",
		Long: `Show a job: its state and why it waits, position and ETA, how its last attempts ended,
the last response, and its payload. Headers with the name of a credential, such as Authorization, are
shown as "***". Of a settled job only the state is known, until its dedupe window
ends. Where the bucket keeps its result, it is shown when it was sent, how long that took, and
the status, and the command that shows all of the result is named.`,
		Example: `  dispatcher job show webhooks order-17
  dispatcher job show webhooks order-17 --json | jq .payload`,
		Args: positional("BUCKET", "ID"),
		RunE: a.onJob(func(ctx context.Context, c *api, bucket, id string) error {
			view, err := c.job(ctx, bucket, id)
			if err != nil {
				return err
			}
			return a.printJob(view, a.resultOf(ctx, c, view))
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// resultOf is the command that shows the result of a job, "" if none is kept.
func (a *invocation) resultOf(ctx context.Context, c *api, v *opsview.Job) string {
	if a.json || v.State != shaper.StateDone {
		return ""
	}
	if _, err := call(ctx, c, httpapi.ShowResult, theJob(v.Bucket, v.ID)); err != nil {
		return ""
	}
	return fmt.Sprintf("is kept: %s job result %s %s", a.program, v.Bucket, v.ID)
}
