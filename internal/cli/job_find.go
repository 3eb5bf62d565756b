package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
)

func (a *invocation) jobFindCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "find ID",
		Short: "Find a job by its id alone, in whichever bucket it is",
		Long: `Find a job by its id alone: a line for each bucket that has one of this id, or remembers one. The exit
code is 4 where there is none.`,
		Example: `  dispatcher job find order-17
  dispatcher job find order-17 --json | jq -r '.jobs[].bucket'`,
		Args: positional("ID"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			v, err := call(ctx, c, httpapi.FindJob, httpapi.JobID{ID: args[0]})
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) {
				fmt.Fprintln(w, "BUCKET\tSTATE\tFLOW\tWHY")
				for _, job := range v.Jobs {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", job.Bucket, job.State, dash(deref(job.Flow)), dash(job.Why))
				}
			})
		})
	}
	a.jsonFlag(cmd)
	return cmd
}
