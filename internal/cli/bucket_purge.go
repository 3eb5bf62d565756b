package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) bucketPurgeCommand() *cobra.Command {
	var yes bool
	var options operator.PurgeOptions
	cmd := &cobra.Command{
		Use:   "purge NAME",
		Short: "Drop all waiting jobs of a bucket",
		Long: `Drop all waiting jobs of a bucket, for good. There is no way back. None of them
departs from the first moment on. Jobs in flight, and jobs that come meanwhile, stay.
If this program is interrupted, the sweeper of a dispatcher goes on. Type the
bucket's name to confirm; without a terminal, give --yes instead.

It also works on a bucket that left the configuration.`,
		Example: `  dispatcher bucket purge webhooks
  dispatcher bucket purge webhooks --keep-later --yes`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !isTerminal(a.in) {
				return wrongUsage(cmd, "this drops every job of the bucket that waits: confirm with --yes, as there is no terminal to ask")
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				return a.bucketPurge(ctx, s, args[0], options, yes)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&options.KeepLater, "keep-later", false, "leave delayed jobs and retries that wait for their time")
	return cmd
}

func (a *app) bucketPurge(ctx context.Context, s *station, bucket string, options operator.PurgeOptions, yes bool) error {
	if !yes {
		views, err := s.bucketViews(ctx, bucket)
		if err != nil {
			return err
		}
		jobs := views[0].Waiting
		if !options.KeepLater {
			jobs += views[0].Later
		}
		if err := a.confirm(fmt.Sprintf("This drops %s of bucket %q for good.", count(jobs, "waiting job"), bucket), bucket, "nothing is purged"); err != nil {
			return err
		}
	}
	purged, err := s.operator.As(author()).Bucket(bucket).Purge(ctx, options)
	if err != nil {
		if purged.Left > 0 {
			a.note("%s purged before it failed; none of the others departs, and the sweeper of a dispatcher removes them", count(purged.Jobs, "job"))
		}
		return err
	}
	view := struct {
		Bucket string `json:"bucket"`
		Purged int64  `json:"purged"`
	}{bucket, purged.Jobs}
	return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "purged: %s\n", count(purged.Jobs, "job")) })
}

// confirm asks the operator to type the bucket's name before a change that cannot be undone, or is costly.
func (a *app) confirm(what, bucket, instead string) error {
	fmt.Fprintf(a.err, "%s Type the bucket's name to go on: ", what)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(answer) != bucket {
		return fail(exitFailed, "%s: that was not %q", instead, bucket)
	}
	return nil
}
