package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) bucketPurgeCommand() *cobra.Command {
	var flags purgeFlags
	cmd := &cobra.Command{
		Use:   "purge NAME",
		Short: "Drop all waiting jobs of a bucket",
		Long: `Drop all waiting jobs of a bucket, for good. There is no way back. None of them
departs from the first moment on. Jobs in flight, and jobs that come meanwhile, stay.
If this program is interrupted, the sweeper of a dispatcher goes on. Type the
bucket's name to confirm; without a terminal, give --yes instead. With --dry-run the
jobs are only counted.

It also works on a bucket that left the configuration.`,
		Example: `  dispatcher bucket purge webhooks
  dispatcher bucket purge webhooks --dry-run
  dispatcher bucket purge webhooks --keep-later --yes`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.purge(cmd, flags, "bucket", args[0], args[0], askBucketPurge(args[0]))
		},
	}
	a.jsonFlag(cmd)
	flags.add(cmd)
	return cmd
}

func askBucketPurge(name string) askPurge {
	return func(ctx context.Context, c *api, request httpapi.PurgeRequest) (*opsview.Purge, error) {
		return call(ctx, c, httpapi.PurgeBucket, httpapi.BucketPurge{BucketName: httpapi.BucketName{Bucket: name}, PurgeRequest: request})
	}
}

// purgeFlags are the flags of all purges.
type purgeFlags struct{ yes, dryRun, keepLater bool }

func (f *purgeFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count the jobs that would be dropped")
	cmd.Flags().BoolVar(&f.keepLater, "keep-later", false, "leave delayed jobs and retries that wait for their time")
}

// purge drops the waiting jobs of a bucket, or of one of its flows or groups (what, and its name), after it has counted them and the operator has
// confirmed.
func (a *invocation) purge(cmd *cobra.Command, flags purgeFlags, what, bucket, name string, ask askPurge) error {
	if !flags.yes && !flags.dryRun && !isTerminal(a.in) {
		return wrongUsage(cmd, "this drops every job of the %s that waits: confirm with --yes, as there is no terminal to ask", what)
	}
	return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
		return a.purgeBy(ctx, c, flags, what, bucket, name, ask)
	})
}

// askPurge requests a purge, or a dry run of it.
type askPurge func(ctx context.Context, c *api, request httpapi.PurgeRequest) (*opsview.Purge, error)

func (a *invocation) purgeBy(ctx context.Context, c *api, flags purgeFlags, what, bucket, name string, ask askPurge) error {
	if flags.dryRun || !flags.yes {
		view, err := ask(ctx, c, httpapi.PurgeRequest{KeepLater: flags.keepLater, DryRun: true})
		if err != nil {
			return err
		}
		jobs := opsview.Count(deref(view.Matched), "waiting job")
		if flags.dryRun {
			return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "a purge would drop %s; nothing is changed\n", jobs) })
		}
		whose := fmt.Sprintf("bucket %q", bucket)
		if what != "bucket" {
			whose = fmt.Sprintf("%s %s of %s", what, quoted(name), whose)
		}
		if err := a.confirm(fmt.Sprintf("This drops %s of %s for good.", jobs, whose), what, name, "nothing is purged"); err != nil {
			return err
		}
	}
	view, err := ask(ctx, c, httpapi.PurgeRequest{KeepLater: flags.keepLater, Confirm: &name})
	if err != nil {
		if p, ok := errors.AsType[*problem](err); ok && p.Purged > 0 {
			a.note("%s purged before it failed; none of the others departs, and the sweeper of a dispatcher removes them", opsview.Count(p.Purged, "job"))
		}
		return err
	}
	return a.print(view, func(w io.Writer) {
		fmt.Fprintf(w, "purged: %s\n", opsview.Count(view.Purged, "job"))
		if view.Left > 0 {
			fmt.Fprintf(w, "the sweeper of a dispatcher removes %d more, none of which departs\n", view.Left)
		}
	})
}

// confirm asks the operator to type the name of a bucket, a flow or a group (of) before a change that cannot be undone, or is costly.
func (a *invocation) confirm(what, of, name, instead string) error {
	fmt.Fprintf(a.err, "%s Type the %s's name to go on: ", what, of)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(answer) != strings.TrimSpace(name) {
		return fail(exitFailed, "%s: that was not %q", instead, name)
	}
	return nil
}
