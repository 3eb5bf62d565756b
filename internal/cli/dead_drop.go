package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *invocation) deadDropCommand() *cobra.Command {
	var all, yes, dryRun bool
	var filter deadFilter
	cmd := &cobra.Command{
		Use:   "drop BUCKET ID...|--all|--FILTER",
		Short: "Drop dead letters for good",
		Long: `Drop dead letters for good. There is no way back. With --all, and with a filter, the
bucket's name has to be typed to confirm; without a terminal, give --yes instead.`,
		Example: `  dispatcher dead drop webhooks order-17
  dispatcher dead drop webhooks --cause expired --until 48h --dry-run
  dispatcher dead drop webhooks --all
  dispatcher dead drop webhooks --all --yes`,
		Args: positional("BUCKET", "[ID...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filtered, err := filter.read(cmd)
			if err != nil {
				return err
			}
			if err := idsOrAll(cmd, args[1:], all, filtered, dryRun); err != nil {
				return err
			}
			if (all || filtered && !dryRun) && !yes && !isTerminal(a.in) {
				what := "--all drops every dead letter of the bucket"
				if filtered {
					what = "a filter drops every dead letter that it means"
				}
				return wrongUsage(cmd, "%s: confirm with --yes, as there is no terminal to ask", what)
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				if filtered || all { // the zero filter matches all
					return a.deadDropFound(ctx, c, args[0], filter.DeadFilter, dryRun, yes)
				}
				return a.deadDrop(ctx, c, args[0], args[1:])
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all of the bucket, or all that the filter means")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --all or a filter: do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with a filter: only count what it means")
	filter.flags(cmd)
	return cmd
}

// deadDropFound drops the dead letters that a filter matches, after it has counted them and the operator has confirmed.
func (a *invocation) deadDropFound(ctx context.Context, c *api, bucket string, filter operator.DeadFilter, dryRun, yes bool) error {
	drop := c.dropFound(bucket)
	if !yes {
		change, err := a.deadChange(ctx, filter, true, false, drop)
		if err != nil {
			return err
		}
		if dryRun {
			return a.printMatched(change.Matched)
		}
		if err := a.confirm(fmt.Sprintf("This drops %s of bucket %q for good.", opsview.Count(change.Matched, "dead letter"), bucket), "bucket", bucket, "nothing is dropped"); err != nil {
			return err
		}
	}
	change, err := a.deadChange(ctx, filter, dryRun, false, drop)
	switch {
	case err != nil && change.Dropped > 0:
		a.note("%s dropped before it failed", opsview.Count(change.Dropped, "dead letter"))
		return err
	case err != nil:
		return err
	case dryRun:
		return a.printMatched(change.Matched)
	}
	return a.printDropped(change.Dropped)
}

// deadDrop drops the ids that it can, and then prints those that it could not.
func (a *invocation) deadDrop(ctx context.Context, c *api, bucket string, ids []string) error {
	dropped, others, err := c.dropIDs(ctx, bucket, ids)
	if err != nil {
		return err
	}
	code, left := exitDone, make([]string, len(others))
	for i, job := range others {
		if job.State == "" {
			left[i], code = fmt.Sprintf("%q is unknown", job.ID), exitNotFound
		} else {
			left[i], code = fmt.Sprintf("%q is no dead letter: it is %s", job.ID, job.State), max(code, exitFailed)
		}
	}
	if err := a.printDropped(dropped); err != nil || code == exitDone {
		return err
	}
	return fail(code, "not dropped: %s", strings.Join(left, ", "))
}

func (a *invocation) printDropped(n int) error {
	view := struct {
		Dropped int `json:"dropped"`
	}{n}
	return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "dropped: %s\n", opsview.Count(n, "dead letter")) })
}
