package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
)

// moveNews is how often a move says how far it is.
const moveNews = time.Second

func (a *app) bucketMoveCommand() *cobra.Command {
	var yes, abort bool
	options := shaper.MoveOptions{}
	cmd := &cobra.Command{
		Use:   "move NAME",
		Short: "Bring a bucket into the pool that the configuration gives it, or out of one",
		Long: `Bring a bucket with all that it holds to where the configuration here has it: into
a pool, out of one, or into another. Jobs, dead letters, ids of settled jobs, flows and
groups, pins and quotas: all is as it was. The steps of a change of pool are:

  1. Change the configuration, and restart producers and dispatchers with it. They
     refuse the bucket until it is there (503, Retry-After), as do those with the
     configuration of before from then on.
  2. Pause the bucket, move it, and resume it.

The bucket has to be paused, and stays so. When no job is in flight any more, it is
frozen: nothing goes in or out, nor can be changed, until all is copied, which takes
a second for some 100,000 jobs, and for a while twice the memory. Then it is there
at once, and what was copied is removed.

Should this program be interrupted, run it again: it goes on, and nothing is lost or
doubled. Or run it with --abort, and the bucket is as it was; once all is copied,
that is not possible any more. If Redis has not the memory, the bucket is as it was.
The bucket's name has to be typed to confirm; where there is no terminal, --yes says
so instead.`,
		Example: `  dispatcher bucket pause webhooks --reason "it joins pool vendor"
  dispatcher bucket move webhooks
  dispatcher bucket resume webhooks
  dispatcher bucket move webhooks --abort`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if options.Patience <= 0 {
				return wrongUsage(cmd, "--timeout: %s: want a duration above 0", options.Patience)
			}
			if !yes && !abort && !isTerminal(a.in) {
				return wrongUsage(cmd, "the bucket takes no jobs until it is moved: confirm with --yes, as there is no terminal to ask")
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				if abort {
					return a.bucketAbortMove(ctx, s, args[0])
				}
				return a.bucketMove(ctx, s, args[0], options, yes)
			})
		},
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&abort, "abort", false, "give up a move that was not completed: the bucket is as it was")
	cmd.Flags().DurationVar(&options.Patience, "timeout", shaper.DefaultMovePatience, "how long to wait for jobs in flight")
	return cmd
}

// moveView is what a move came to. The name of a pool is "" where the bucket is in none.
type moveView struct {
	Bucket  string `json:"bucket"`
	From    string `json:"from_pool"`
	To      string `json:"to_pool"`
	Jobs    int64  `json:"jobs"`
	Entries int64  `json:"entries"`
	Moved   bool   `json:"moved"` // else it was there
}

func (a *app) bucketMove(ctx context.Context, s *station, bucket string, options shaper.MoveOptions, yes bool) error {
	if !yes {
		views, err := s.bucketViews(ctx, bucket)
		if err != nil {
			return err
		}
		v := &views[0]
		question := fmt.Sprintf("This moves bucket %q, with %s and %s, from %s to %s. It takes no jobs until that is done.", bucket,
			count(v.Depth+v.Scheduled, "job"), count(v.Dead, "dead letter"), poolName(livesIn(&v.info)), poolName(configuredPool(s.config, bucket)))
		if err := a.confirm(question, bucket, "nothing is moved"); err != nil {
			return err
		}
	}
	options.Progress = a.tellMove()
	moved, err := s.client.Control(operator()).Move(ctx, bucket, options)
	if err != nil {
		return a.moveFailed(bucket, err)
	}
	view := moveView{Bucket: bucket, To: configuredPool(s.config, bucket), Jobs: moved.Jobs, Entries: moved.Entries, Moved: !moved.Already}
	if moved.From != bucket {
		view.From = moved.From
	}
	if moved.Already {
		view.From = view.To
	}
	return a.print(view, func(w io.Writer) {
		if moved.Already {
			fmt.Fprintf(w, "nothing is moved: bucket %q is in %s already\n", bucket, poolName(view.To))
			return
		}
		fmt.Fprintf(w, "moved: bucket %q from %s to %s, %s\nit is paused: dispatcher bucket resume %s\n", bucket, poolName(view.From), poolName(view.To), count(moved.Jobs, "job"), bucket)
	})
}

// tellMove returns what says how far a move is: when it waits, and every second.
func (a *app) tellMove() func(shaper.MoveProgress) {
	said, waits := time.Now(), false
	return func(p shaper.MoveProgress) {
		if time.Since(said) < moveNews && (waits || p.Step != shaper.MoveWaits) {
			return
		}
		said = time.Now()
		if waits = p.Step == shaper.MoveWaits; waits {
			a.note("waits for %s in flight", count(p.InFlight, "job"))
			return
		}
		a.note("%s: %d of about %d entries", p.Step, p.Entries, p.Total)
	}
}

// moveFailed says, beside the error, in what state the bucket was left.
func (a *app) moveFailed(bucket string, err error) error {
	failed, ok := errors.AsType[*shaper.MoveError](err)
	if !ok {
		return err
	}
	if failed.Frozen {
		a.note("bucket %q is frozen, nothing goes in or out: run `dispatcher bucket move %s` again, and it goes on, or with --abort, and it is as it was", bucket, bucket)
	}
	if redis.HasErrorPrefix(err, "OOM") {
		return fail(exitFailed, "%v", err) // Redis does answer
	}
	return err
}

func (a *app) bucketAbortMove(ctx context.Context, s *station, bucket string) error {
	was, err := s.client.Control(operator()).AbortMove(ctx, bucket)
	if err != nil {
		return err
	}
	view := struct {
		Bucket  string `json:"bucket"`
		Aborted bool   `json:"aborted"` // else there was no move to give up
	}{bucket, was}
	return a.print(view, func(w io.Writer) {
		if was {
			fmt.Fprintf(w, "given up: bucket %q is where it was, paused\n", bucket)
			return
		}
		fmt.Fprintf(w, "nothing is given up: bucket %q is not being moved\n", bucket)
	})
}
