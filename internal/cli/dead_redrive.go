package cli

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *invocation) deadRedriveCommand() *cobra.Command {
	var all, yes, dryRun, noWait bool
	var limit int
	var filter deadFilter
	cmd := &cobra.Command{
		Use:   "redrive BUCKET ID...|--all|--FILTER",
		Short: "Put dead letters back in the queue",
		Long: `Put dead letters back at the end of the queue with a fresh budget of attempts.
They leave at the bucket's pace. A redrive never exceeds the capacity of the bucket, the
group or the flow.

With --all, and with a filter, the oldest go first. Where there is no place, the command
waits until jobs have left, and goes on until all are moved. It leaves places to producers:
it fills the bucket to nine tenths of what jobs of priority low may, and leaves letters
alone that die after it began. Stop it at any time, and run it again for the rest. With
--no-wait, with --limit, and with ids, what finds no place stays dead, and the exit code
is 3. So it is with the letters of disabled flows.

On a terminal, what a filter means is counted first, and the bucket's name has to be typed
to confirm, unless --yes is given.`,
		Example: `  dispatcher dead redrive webhooks order-17 order-18
  dispatcher dead redrive webhooks --all --limit 100
  dispatcher dead redrive webhooks --flow acme --all
  dispatcher dead redrive webhooks --reason http_500 --since 2h --dry-run
  dispatcher dead redrive webhooks --reason http_500 --since 2h --no-wait`,
		Args: positional("BUCKET", "[ID...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filtered, err := filter.read(cmd)
			if err != nil {
				return err
			}
			if err := idsOrAll(cmd, args[1:], all, filtered, dryRun); err != nil {
				return err
			}
			if cmd.Flags().Changed("limit") && (!all || filtered || limit < 1) {
				return wrongUsage(cmd, "--limit is 1 or more, and goes with --all and no filter")
			}
			if noWait && len(args) > 1 {
				return wrongUsage(cmd, "--no-wait goes with --all or a filter: ids never wait")
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				if filtered || all && !cmd.Flags().Changed("limit") {
					ask := filtered && !yes && !dryRun && isTerminal(a.in)
					return a.deadRedriveFound(ctx, c, args[0], filter.DeadFilter, dryRun, ask, !noWait)
				}
				return a.deadRedrive(ctx, c, args[0], args[1:], limit)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all of the bucket, or all that the filter means, the oldest first")
	cmd.Flags().IntVar(&limit, "limit", math.MaxInt, "with --all: move at most this `number`, as far as there are places")
	cmd.Flags().Lookup("limit").DefValue = "0" // shows as no default
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for places: what finds none stays dead")
	cmd.Flags().BoolVar(&yes, "yes", false, "with a filter: do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with a filter: only count what it means")
	filter.flags(cmd)
	return cmd
}

// deadRedriveFound redrives the dead letters that a filter matches, after a confirmation if one is needed.
func (a *invocation) deadRedriveFound(ctx context.Context, c *api, bucket string, filter operator.DeadFilter, dryRun, ask, wait bool) error {
	redrive := c.redriveFound(bucket)
	if ask {
		change, err := a.deadChange(ctx, filter, true, false, redrive)
		if err != nil {
			return err
		}
		if err := a.confirm(fmt.Sprintf("This redrives %s of bucket %q.", opsview.Count(change.Matched, "dead letter"), bucket), "bucket", bucket, "nothing is redriven"); err != nil {
			return err
		}
	}
	change, err := a.deadChange(ctx, filter, dryRun, wait, redrive)
	if dryRun && err == nil {
		return a.printMatched(change.Matched)
	}
	return a.printRedriven(bucket, change.Redriven, err, false)
}

// deadRedrive moves the ids, or up to limit of all if there are none.
func (a *invocation) deadRedrive(ctx context.Context, c *api, bucket string, ids []string, limit int) error {
	var redriven operator.Redriven
	var err error
	if len(ids) > 0 {
		redriven, err = c.redriveIDs(ctx, bucket, ids)
	} else {
		redriven, err = c.redriveSome(ctx, bucket, limit)
	}
	if err := a.printRedriven(bucket, redriven, err, len(ids) > 0); err != nil || len(ids) != 1 || a.json {
		return err
	}
	a.note("`%s job show %s %s` says when it leaves, and what it waits for", a.program, bucket, ids[0])
	return nil
}

// printRedriven prints the result of a redrive of dead letters. named says that they were chosen by id.
func (a *invocation) printRedriven(bucket string, redriven operator.Redriven, err error, named bool) error {
	if err != nil {
		if redriven.Moved > 0 {
			a.note("%s moved before it ended: run it again for the rest", opsview.Count(redriven.Moved, "dead letter"))
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
	if err := a.print(view, func(w io.Writer) { fmt.Fprintf(w, "redriven: %s\n", opsview.Count(redriven.Moved, "job")) }); err != nil {
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
		n := redriven.FlowFull + redriven.GroupFull
		return fail(exitRefused, "%s %s dead: full %s, or too many of them in bucket %q; redrive when there is room",
			opsview.Count(n, "job"), stays(n), what, bucket)
	case redriven.Disabled > 0:
		return fail(exitRefused, "%s %s dead, of disabled flows; see them with `%s flow list %s` and use `%[3]s flow enable`",
			opsview.Count(redriven.Disabled, "job"), stays(redriven.Disabled), a.program, bucket)
	case redriven.Unknown > 0 && named:
		return fail(exitNotFound, "%d of the ids are no dead letters of bucket %q", redriven.Unknown, bucket)
	}
	return nil
}

func stays(n int) string {
	if n == 1 {
		return "stays"
	}
	return "stay"
}
