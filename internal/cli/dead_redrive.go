package cli

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) deadRedriveCommand() *cobra.Command {
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:   "redrive BUCKET ID...|--all",
		Short: "Put dead letters back in the queue",
		Long: `Put dead letters back at the end of the queue with a fresh budget of attempts.
They leave at the bucket's pace. A redrive never exceeds the capacity of the bucket, the
group or the flow: the rest stays dead, and the exit code is 3. With --all the oldest
go first.`,
		Example: `  dispatcher dead redrive webhooks order-17 order-18
  dispatcher dead redrive webhooks --all --limit 100`,
		Args: positional("BUCKET", "[ID...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := idsOrAll(cmd, args[1:], all); err != nil {
				return err
			}
			if cmd.Flags().Changed("limit") && (!all || limit < 1) {
				return wrongUsage(cmd, "--limit is 1 or more, and goes with --all")
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				return a.deadRedrive(ctx, s, args[0], args[1:], limit)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all of the bucket, the oldest first")
	cmd.Flags().IntVar(&limit, "limit", math.MaxInt, "with --all: move at most this `number`")
	cmd.Flags().Lookup("limit").DefValue = "0" // shows as no default
	return cmd
}

// deadRedrive moves the ids, or up to limit of all if there are none.
func (a *app) deadRedrive(ctx context.Context, s *station, bucket string, ids []string, limit int) error {
	redriven, err := s.redrive(ctx, bucket, ids, limit)
	if err != nil {
		if redriven.Moved > 0 {
			a.note("%s moved before it failed", count(redriven.Moved, "dead letter"))
		}
		return err
	}
	view := struct {
		Moved   int `json:"moved"`
		Unknown int `json:"unknown"`
		Full    int `json:"full"`

		FlowFull  int `json:"flow_full"`
		GroupFull int `json:"group_full"`

		Disabled int `json:"flow_disabled"`
	}(redriven)
	if err := a.print(view, func(w io.Writer) { fmt.Fprintf(w, "redriven: %s\n", count(redriven.Moved, "job")) }); err != nil {
		return err
	}
	switch {
	case redriven.Full > 0:
		return fail(exitRefused, "bucket %q is full: the rest stays dead; redrive it when there is room", bucket)
	case redriven.FlowFull+redriven.GroupFull > 0:
		what := "flows"
		if redriven.GroupFull > 0 {
			what = "groups or flows"
		}
		return fail(exitRefused, "%s stay dead: their %s are full, or bucket %q would have too many %s; redrive them when there is room",
			count(redriven.FlowFull+redriven.GroupFull, "job"), what, bucket, what)
	case redriven.Disabled > 0:
		return fail(exitRefused, "%s stay dead: their flows are disabled; see them with `%s flow list %s` and use `%s flow enable`",
			count(redriven.Disabled, "job"), a.program, bucket, a.program)
	case redriven.Unknown > 0 && len(ids) > 0:
		return fail(exitNotFound, "%d of the ids are no dead letters of bucket %q", redriven.Unknown, bucket)
	}
	return nil
}

func (s *station) redrive(ctx context.Context, bucket string, ids []string, limit int) (operator.Redriven, error) {
	if len(ids) == 0 {
		return s.operator.As(author()).Bucket(bucket).Dead().RedriveAll(ctx, limit)
	}
	return s.operator.As(author()).Bucket(bucket).Dead().Redrive(ctx, ids...)
}
