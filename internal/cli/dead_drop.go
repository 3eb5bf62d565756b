package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) deadDropCommand() *cobra.Command {
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
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				if filtered {
					return a.deadDropFound(ctx, s, args[0], filter.DeadFilter, dryRun, yes)
				}
				if all {
					return a.deadDropAll(ctx, s, args[0], yes)
				}
				return a.deadDrop(ctx, s, args[0], args[1:])
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all of the bucket")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --all or a filter: do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with a filter: only count what it means")
	filter.flags(cmd)
	return cmd
}

// deadDropFound drops what a filter means, after it was counted and confirmed.
func (a *app) deadDropFound(ctx context.Context, s *station, bucket string, filter operator.DeadFilter, dryRun, yes bool) error {
	drop := s.operator.As(author()).Bucket(bucket).Dead().DropFound
	if !yes {
		change, err := a.deadChange(ctx, filter, true, false, drop)
		if err != nil {
			return err
		}
		if dryRun {
			return a.printMatched(change.Matched)
		}
		if err := a.confirmDrop(bucket, change.Matched); err != nil {
			return err
		}
	}
	change, err := a.deadChange(ctx, filter, dryRun, false, drop)
	switch {
	case err != nil && change.Dropped > 0:
		a.note("%s dropped before it failed", count(change.Dropped, "dead letter"))
		return err
	case err != nil:
		return err
	case dryRun:
		return a.printMatched(change.Matched)
	}
	return a.printDropped(change.Dropped)
}

// confirmDrop asks whether so many dead letters are to be dropped.
func (a *app) confirmDrop(bucket string, n int) error {
	fmt.Fprintf(a.err, "This drops %s of bucket %q for good. Type the bucket's name to go on: ", count(n, "dead letter"), bucket)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(answer) != bucket {
		return fail(exitFailed, "nothing is dropped: that was not %q", bucket)
	}
	return nil
}

// deadDrop drops the ids it can, and then says which it could not.
func (a *app) deadDrop(ctx context.Context, s *station, bucket string, ids []string) error {
	dropped, code := 0, exitDone
	var left []string
	for _, id := range ids {
		state, err := s.operator.As(author()).Bucket(bucket).Dead().Drop(ctx, id)
		switch {
		case errors.Is(err, shaper.ErrNotFound):
			left, code = append(left, fmt.Sprintf("%q is unknown", id)), max(code, exitNotFound)
		case err != nil:
			return err
		case state == shaper.StateDropped:
			dropped++
		default:
			left, code = append(left, fmt.Sprintf("%q is no dead letter: it is %s", id, state)), max(code, exitFailed)
		}
	}
	if err := a.printDropped(dropped); err != nil || code == exitDone {
		return err
	}
	return fail(code, "not dropped: %s", strings.Join(left, ", "))
}

func (a *app) deadDropAll(ctx context.Context, s *station, bucket string, yes bool) error {
	if _, err := s.operator.Bucket(bucket).Settings(); err != nil {
		return err
	}
	if !yes {
		views, err := s.bucketViews(ctx, bucket)
		if err != nil {
			return err
		}
		if err := a.confirmDrop(bucket, int(views[0].Dead)); err != nil {
			return err
		}
	}
	dropped, err := s.operator.As(author()).Bucket(bucket).Dead().DropAll(ctx)
	if err != nil && dropped > 0 {
		a.note("%s dropped before it failed", count(dropped, "dead letter"))
	}
	if err != nil {
		return err
	}
	return a.printDropped(dropped)
}

func (a *app) printDropped(n int) error {
	view := struct {
		Dropped int `json:"dropped"`
	}{n}
	return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "dropped: %s\n", count(n, "dead letter")) })
}
