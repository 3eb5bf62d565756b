package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) jobCancelCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "cancel BUCKET ID",
		Short: "Cancel a waiting job",
		Long: `Cancel a waiting job: queued, scheduled or retrying. A job that is in flight, dead or
done does not change, and the exit code is 1. To cancel a job twice is harmless.`,
		Example: `  dispatcher job cancel webhooks order-17`,
		Args:    positional("BUCKET", "ID"),
		RunE:    a.onJob(a.jobCancel),
	})
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

func (a *invocation) jobRetryCommand() *cobra.Command {
	var all bool
	var flow, group string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "retry BUCKET --flow NAME|--all",
		Short: "Make jobs due that wait for another attempt",
		Long: `Make jobs due that wait for another attempt, once their receiver is repaired: the jobs of
a flow, or all of the bucket. They keep their attempts, and leave in the order in which they
were due, at the pace of their flow and bucket. A hold and an open circuit breaker go on:
release them first. Delayed jobs that were never sent keep their time. Dead letters are put
back with "dispatcher dead redrive". To retry twice is harmless.`,
		Example: `  dispatcher flow release webhooks acme
  dispatcher job retry webhooks --flow acme
  dispatcher job retry webhooks --all`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := httpapi.JobRetry{BucketName: theBucket(args), Flow: textFlag(cmd, "flow", &flow), Group: textFlag(cmd, "group", &group), All: all}
			if all == (in.Flow != nil) || all && in.Group != nil {
				return wrongUsage(cmd, "name the jobs: --flow, with --group in a bucket with groups, or --all")
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.jobRetry(ctx, c, in) })
		},
	})
	cmd.Flags().StringVar(&flow, "flow", "", "jobs of the flow with this `name`")
	cmd.Flags().StringVar(&group, "group", "", "`name` of the flow's group")
	cmd.Flags().BoolVar(&all, "all", false, "all of the bucket")
	return cmd
}

// jobRetry makes retries due, in as many requests as it needs.
func (a *invocation) jobRetry(ctx context.Context, c *api, in httpapi.JobRetry) error {
	sum := opsview.Retried{Bucket: in.Bucket}
	for {
		retried, err := call(ctx, c, httpapi.RetryJobs, in)
		if err != nil {
			if sum.Jobs > 0 {
				a.note("%s became due before it ended: run it again for the rest", opsview.Count(int(sum.Jobs), "job"))
			}
			return named(err, "bucket", in.Bucket)
		}
		if sum.Jobs += retried.Jobs; !retried.More {
			break
		}
	}
	err := a.print(sum, func(w io.Writer) { fmt.Fprintf(w, "due now: %s\n", opsview.Count(int(sum.Jobs), "job")) })
	if err == nil && !a.json && sum.Jobs == 0 {
		a.note("no job waits for another attempt: those in the list are due, or were delayed when they were enqueued and keep their time. Dead letters: `%s dead redrive %s`", a.program, in.Bucket)
	}
	if err == nil && !a.json && sum.Jobs > 0 {
		a.note("they leave at the pace of the bucket: `%s bucket why %s` shows what keeps them", a.program, in.Bucket)
	}
	return err
}
