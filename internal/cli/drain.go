package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// drainPoll is the interval at which a watched drain is polled.
const drainPoll = time.Second

// drainFlags are the flags of the command drain.
type drainFlags struct {
	rate             string
	most             int64
	untilEmpty, stop bool
	watch            bool
}

func (a *invocation) bucketDrainCommand() *cobra.Command {
	var flags drainFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "drain BUCKET",
		Short: "Have a bucket leak now, whatever its drain windows say",
		Long: `Have a bucket leak now, whatever its drain windows say, until --max jobs have left or the
bucket is empty: nothing waits, is due or is in flight. It leaks at the rate in force, or
at --rate if that is slower. A paused bucket stays paused. The drain is kept in Redis: it
goes on if this program ends, and one runs at a time.

With --watch the program shows how far the drain is, and waits for its end. If a drain runs
already, it watches that one, unless the flags ask for another one. It exits with 0 when
the drain is done, and with 1 when it was stopped. Ctrl-C leaves the drain going.`,
		Example: `  dispatcher bucket drain reports
  dispatcher bucket drain reports --rate 5/s --max 1000 --watch
  dispatcher bucket drain reports --stop`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.stop && (flags.rate != "" || flags.most != 0 || flags.untilEmpty || flags.watch) {
				return wrongUsage(cmd, "--stop goes with no other flag of a drain")
			}
			if cmd.Flags().Changed("max") && flags.most < 1 {
				return wrongUsage(cmd, "--max %d: want 1 or more, or leave it out to drain until the bucket is empty", flags.most)
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.drain(ctx, c, args[0], flags) })
		},
	})
	cmd.Flags().StringVar(&flags.rate, "rate", "", "slower than the rate in force, such as `5/s`")
	cmd.Flags().Int64Var(&flags.most, "max", 0, "departures after which the drain ends: retries count, and what was given back unsent")
	cmd.Flags().BoolVar(&flags.untilEmpty, "until-empty", false, "with --max: end earlier if the bucket is empty")
	cmd.Flags().BoolVar(&flags.watch, "watch", false, "show how far it is, and wait for its end")
	cmd.Flags().BoolVar(&flags.stop, "stop", false, "stop the drain that runs")
	return cmd
}

func (a *invocation) drain(ctx context.Context, c *api, bucket string, flags drainFlags) error {
	of := httpapi.BucketName{Bucket: bucket}
	if flags.stop {
		view, err := call(ctx, c, httpapi.StopDrain, of)
		if err != nil {
			return named(err, "bucket", bucket)
		}
		return a.print(view, func(w io.Writer) {
			if deref(view.Changed) {
				fmt.Fprintf(w, "stopped: %s\n", view.Drain.Text(time.Now()))
			} else {
				fmt.Fprintf(w, "no drain of %s runs\n", bucket)
			}
		})
	}
	asked := httpapi.BucketDrain{BucketName: of, Max: flags.most, UntilEmpty: flags.untilEmpty}
	if flags.rate != "" {
		var err error
		if asked.Rate, err = admission.ParseRate(flags.rate); err != nil {
			return fail(exitUsage, "bucket %q: rate: %w", bucket, err)
		}
	}
	view, err := call(ctx, c, httpapi.DrainBucket, asked)
	if err != nil {
		answered, ok := errors.AsType[*problem](err)
		if !ok || answered.Code != "conflicting-state" {
			return named(err, "bucket", bucket)
		}
		if view, err = c.bucket(ctx, bucket); err != nil {
			return err
		}
		if d := view.Drain; d == nil || !flags.watch || !flags.asks(d) {
			return fail(exitFailed, "bucket %q has a drain, which runs: %s. Stop it first: `%s bucket drain %[1]s --stop`. To watch it: `%[3]s bucket drain %[1]s --watch`",
				bucket, drainOf(d), a.program)
		}
		a.note("a drain of %s runs already: this watches it", bucket)
	}
	if !flags.watch || view.Drain == nil {
		return a.print(view, func(w io.Writer) { fmt.Fprintf(w, "drain of %s: %s\n", bucket, drainText(view)) })
	}
	return a.watchDrain(ctx, c, view)
}

// asks reports whether a drain is the one that the flags request: each flag is unset, or has the drain's value.
func (f *drainFlags) asks(d *opsview.Drain) bool {
	if f.rate == "" && f.most == 0 && !f.untilEmpty {
		return true
	}
	if f.most != d.Max || (f.untilEmpty || f.most == 0) != d.UntilEmpty || (f.rate == "") != (d.Rate == "") {
		return false
	}
	if f.rate == "" {
		return true
	}
	asked, err := admission.ParseRate(f.rate)
	running, err2 := admission.ParseRate(d.Rate)
	return err == nil && err2 == nil && asked == running
}

// drainOf describes a drain in one line, if it is known.
func drainOf(d *opsview.Drain) string {
	if d == nil {
		return "it has ended by now"
	}
	return d.Text(time.Now())
}

// watchDrain shows how far a drain is until it ends.
func (a *invocation) watchDrain(ctx context.Context, c *api, view *opsview.Bucket) error {
	id, bucket := view.Drain.ID, view.Name
	for shown := ""; ; {
		if text := drainText(view); !a.json && text != shown {
			fmt.Fprintln(a.out, text)
			shown = text
		}
		if view.Drain == nil || view.Drain.ID != id {
			return fail(exitFailed, "drain %s of bucket %q has ended, and another one has begun: look at dispatcher bucket show %s", id, bucket, bucket)
		}
		if view.Drain.State != string(shaper.DrainRuns) {
			break
		}
		select {
		case <-ctx.Done():
			return fail(exitFailed, "the drain of bucket %q goes on: stop it by dispatcher bucket drain %s --stop", bucket, bucket)
		case <-time.After(drainPoll):
		}
		after, err := c.bucket(ctx, bucket)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("the drain goes on, and is not watched any more: %w", err)
		}
		view = after
	}
	if a.json {
		if err := a.print(view, nil); err != nil {
			return err
		}
	}
	if view.Drain.State != string(shaper.DrainDone) {
		return fail(exitFailed, "the drain of bucket %q was stopped", bucket)
	}
	return nil
}

// drainText returns the progress of a drain, in one line.
func drainText(v *opsview.Bucket) string {
	d := v.Drain
	text := fmt.Sprintf("%s: %d departed", d.State, d.Departed)
	if d.Max > 0 {
		text += fmt.Sprintf(" of %d", d.Max)
	}
	text += fmt.Sprintf(", %d waiting, %d in flight", v.Waiting, v.InFlight)
	switch {
	case d.State != string(shaper.DrainRuns):
	case v.Pause != nil:
		text += ", paused"
	case v.Empty != nil && v.Empty.After(time.Now()):
		text += ", empty " + relative(*v.Empty, time.Now()) + earliestText(v)
	case v.Empty != nil:
		text += ", empty at any moment"
	}
	return text
}
