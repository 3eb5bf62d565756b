package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) jobCancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel BUCKET ID",
		Short: "Cancel a waiting job",
		Long: `Cancel a waiting job: queued, scheduled or retrying. A job that is in flight, dead or
done does not change, and the exit code is 1. To cancel a job twice is harmless.`,
		Example: `  dispatcher job cancel webhooks order-17`,
		Args:    positional("BUCKET", "ID"),
		RunE:    a.onJob(a.jobCancel),
	}
	a.jsonFlag(cmd)
	return cmd
}

// stateView is the state of a job.
type stateView struct {
	ID     string       `json:"id"`
	Bucket string       `json:"bucket"`
	State  shaper.State `json:"state"`
}

func (a *invocation) jobCancel(ctx context.Context, c *api, bucket, id string) error {
	view, err := call(ctx, c, httpapi.CancelJob, theJob(bucket, id))
	if err == nil {
		return a.print(stateView{id, bucket, view.State}, func(w io.Writer) { fmt.Fprintf(w, "cancelled %s\n", id) })
	}
	answered, ok := errors.AsType[*problem](err)
	if !ok || answered.Code != "conflicting-state" {
		return err
	}
	if a.json {
		if err := a.print(stateView{id, bucket, answered.State}, nil); err != nil {
			return err
		}
	}
	return fail(exitFailed, "job %q in bucket %q is not cancelled: %s", id, bucket, map[shaper.State]string{
		shaper.StateInFlight: "it is in_flight; a delivery that has left cannot be called back",
		shaper.StateDead:     "it is dead; drop it with `dispatcher dead drop`",
		shaper.StateDone:     "it is done",
		shaper.StateDropped:  "it is dropped already",
	}[answered.State])
}
