package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper/fleet"
)

func (a *invocation) bucketHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history BUCKET",
		Short: "Show what was counted of a bucket in the last 24 hours",
		Long: `Show what arrived in a bucket, was refused, departed and failed in the last 24 hours, in all processes:
a line for each hour in which something was counted. The picture has its departures in five minutes
each, twelve an hour. With --json there are all points of five minutes.`,
		Example: `  dispatcher bucket history webhooks
  dispatcher bucket history webhooks --json | jq '[.points[].departed] | add'`,
		Args: positional("BUCKET"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			v, err := call(ctx, c, httpapi.ShowHistory, theBucket(args))
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { printHistory(w, v.Points) })
		})
	}
	a.jsonFlag(cmd)
	return cmd
}

// printHistory writes a line for each hour that counted something.
func printHistory(w io.Writer, points []fleet.Point) {
	most := int64(0)
	for _, p := range points {
		most = max(most, p.Departed)
	}
	fmt.Fprintln(w, "HOUR\tARRIVED\tREFUSED\tDEPARTED\tFAILED\tDEPARTURES")
	for len(points) > 0 {
		hour := points[0].At.Truncate(time.Hour)
		var sum fleet.Counts
		var departed []int64
		for len(points) > 0 && points[0].At.Truncate(time.Hour).Equal(hour) {
			p := points[0]
			sum.Arrived, sum.Refused, sum.Departed, sum.Failed = sum.Arrived+p.Arrived, sum.Refused+p.Refused, sum.Departed+p.Departed, sum.Failed+p.Failed
			departed, points = append(departed, p.Departed), points[1:]
		}
		if sum != (fleet.Counts{}) {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", hour.UTC().Format("2006-01-02T15:04Z"), sum.Arrived, sum.Refused, sum.Departed, sum.Failed, picture(departed, float64(most)))
		}
	}
}
