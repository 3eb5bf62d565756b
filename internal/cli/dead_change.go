package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/progress"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *invocation) deadRedriveCommand() *cobra.Command {
	var all, yes, dryRun, noWait bool
	var limit int
	var filter deadFilter
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "redrive BUCKET ID...|--all|--FILTER",
		Short: "Put dead letters back in the queue",
		Long: `Put dead letters back at the end of the queue with a fresh budget of attempts.
They leave at the bucket's pace. A redrive never exceeds the capacity of the bucket, the
group or the flow.

With --all, and with a filter, the oldest go first. Without free capacity the command waits
until jobs were sent, and goes on until all dead letters are moved. It leaves free capacity
for producers: it fills the bucket to 90 % of the capacity for jobs of priority low. It leaves
alone the dead letters of jobs that die after it began. Stop it at any time, and run it again
for the rest. With --no-wait, with --limit, and with ids, jobs without free capacity stay dead,
and the exit code is 3. The same holds for the dead letters of disabled flows.

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
	})
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

func (a *invocation) deadDropCommand() *cobra.Command {
	var all, yes, dryRun bool
	var filter deadFilter
	cmd := a.jsonFlag(&cobra.Command{
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
	})
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

// idsOrAll requires ids, --all, or a filter, and --dry-run with a filter only. --all with a filter means all that the filter matches.
func idsOrAll(cmd *cobra.Command, ids []string, all, filtered, dryRun bool) error {
	switch {
	case all && len(ids) > 0:
		return wrongUsage(cmd, "ids and --all are both given: choose one")
	case filtered && len(ids) > 0:
		return wrongUsage(cmd, "ids and a filter are both given: choose one")
	case dryRun && !filtered:
		return wrongUsage(cmd, "--dry-run goes with a filter, such as --cause")
	case !all && !filtered && len(ids) == 0:
		return wrongUsage(cmd, "say which: ids, a filter such as --cause, or --all")
	}
	return nil
}

// printMatched prints how many dead letters a filter matches.
func (a *invocation) printMatched(n int) error {
	view := struct {
		Matched int `json:"matched"`
	}{n}
	return a.print(view, func(w io.Writer) {
		fmt.Fprintf(w, "the filter means: %s; nothing is changed\n", opsview.Count(n, "dead letter"))
	})
}

// deadChanges is a change of all dead letters that a filter matches.
type deadChanges func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error)

// The wait of a change while nothing can be moved. It doubles if nothing was moved since the last wait, otherwise it halves. It is at least the time
// that the reads since the last wait took.
const (
	placesLeast = 100 * time.Millisecond
	placesMost  = 10 * time.Second
)

// deadChange changes all dead letters that a filter matches, and shows the progress. With wait it goes on until no dead letter is left that could be
// moved.
func (a *invocation) deadChange(ctx context.Context, filter operator.DeadFilter, dryRun, wait bool, change deadChanges) (sum operator.DeadChange, err error) {
	var line atomic.Value
	line.Store(deadLine(sum, false))
	watched, hide := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		progress.Show(watched, a.err, time.Minute, func() string { text, _ := line.Load().(string); return text })
	})
	defer func() { hide(); showing.Wait() }()
	pause, disabled, since := placesLeast, 0, time.Now()
	for cursor := ""; ; {
		part, err := change(ctx, filter, cursor, dryRun)
		sum.Matched, sum.Looked, sum.Dropped = sum.Matched+part.Matched, sum.Looked+part.Looked, sum.Dropped+part.Dropped
		sum.Add(part.Redriven)
		line.Store(deadLine(sum, part.Waiting))
		if err == nil && part.Next == "" {
			a.hintAtCause(&filter, sum.Matched)
		}
		if cursor = part.Next; err != nil || cursor == "" || part.Waiting && !wait {
			sum.Disabled = max(sum.Disabled, disabled)
			return sum, err
		}
		if !part.Waiting {
			continue
		}
		if part.Full == 0 { // the next round reads the dead letters again that this one could not move
			disabled, sum.Disabled = max(sum.Disabled, disabled), 0
		}
		sum.Full, sum.FlowFull, sum.GroupFull = 0, 0, 0
		if part.Moved > 0 {
			pause = max(pause/2, placesLeast)
		} else {
			pause = min(2*pause, placesMost)
		}
		select {
		case <-time.After(max(pause, time.Since(since))):
			since = time.Now()
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
}

// deadLine returns the progress of a change of dead letters.
func deadLine(sum operator.DeadChange, waiting bool) string {
	text := fmt.Sprintf("%s looked at, %d redriven, %d dropped", opsview.Count(sum.Looked, "dead letter"), sum.Moved, sum.Dropped)
	if waiting {
		text += "; waiting for places"
	}
	return text
}

// Bounds of one request, as the API has them.
const (
	idsAtOnce     = 200  // dead letters by id
	redriveAtOnce = 1000 // dead letters of all
)

// deadChoice chooses all dead letters that a filter matches; the zero filter matches all.
func deadChoice(bucket string, filter *operator.DeadFilter, cursor string, dryRun bool) httpapi.DeadChoice {
	return httpapi.DeadChoice{
		BucketName: httpapi.BucketName{Bucket: bucket}, Filter: *filter, All: *filter == operator.DeadFilter{}, Cursor: cursor, DryRun: dryRun,
	}
}

// redrive redrives dead letters. With an error it also returns what was done before.
func (c *api) redrive(ctx context.Context, in httpapi.DeadRedrive) (operator.DeadChange, error) {
	view, err := call(ctx, c, httpapi.RedriveDead, in)
	change, _, err := deadChange(view, in.Bucket, err)
	return change, err
}

// drop drops dead letters. With an error it also returns what was done before.
func (c *api) drop(ctx context.Context, in httpapi.DeadChoice) (change operator.DeadChange, notDead []opsview.NotDead, err error) {
	in.Confirm = in.Bucket
	view, err := call(ctx, c, httpapi.DropDead, in)
	return deadChange(view, in.Bucket, err)
}

func deadChange(view *opsview.DeadChange, bucket string, err error) (operator.DeadChange, []opsview.NotDead, error) {
	if view == nil {
		view = &opsview.DeadChange{}
	}
	if p, ok := errors.AsType[*problem](err); ok {
		view.Moved, view.Dropped = &p.Moved, &p.Dropped
	}
	return operator.DeadChange{Matched: view.Matched, Looked: view.Looked, Dropped: deref(view.Dropped), Next: view.Next, Waiting: view.Waiting, Redriven: operator.Redriven{
		Moved: deref(view.Moved), Full: view.Full, FlowFull: view.FlowFull, GroupFull: view.GroupFull, Disabled: view.Disabled, Unknown: view.Unknown,
	}}, view.NotDead, named(err, "bucket", bucket)
}

// redriveFound does [operator.DeadLetters.RedriveFound] by requests.
func (c *api) redriveFound(bucket string) deadChanges {
	return func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error) {
		return c.redrive(ctx, httpapi.DeadRedrive{DeadChoice: deadChoice(bucket, &filter, cursor, dryRun)})
	}
}

// dropFound does [operator.DeadLetters.DropFound] by requests.
func (c *api) dropFound(bucket string) deadChanges {
	return func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error) {
		change, _, err := c.drop(ctx, deadChoice(bucket, &filter, cursor, dryRun))
		return change, err
	}
}

// redriveIDs redrives dead letters by their ids.
func (c *api) redriveIDs(ctx context.Context, bucket string, ids []string) (sum operator.Redriven, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		change, err := c.redrive(ctx, httpapi.DeadRedrive{DeadChoice: httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: bucket}, IDs: some}})
		if sum.Add(change.Redriven); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// redriveSome redrives limit dead letters, the oldest first.
func (c *api) redriveSome(ctx context.Context, bucket string, limit int) (sum operator.Redriven, err error) {
	for sum.Moved < limit {
		n := min(limit-sum.Moved, redriveAtOnce)
		change, err := c.redrive(ctx, httpapi.DeadRedrive{DeadChoice: httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: bucket}, All: true}, Limit: n})
		if sum.Add(change.Redriven); err != nil || change.Moved < n {
			return sum, err
		}
	}
	return sum, nil
}

// dropIDs drops dead letters by their ids, and returns the jobs that are none.
func (c *api) dropIDs(ctx context.Context, bucket string, ids []string) (dropped int, left []opsview.NotDead, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		change, notDead, err := c.drop(ctx, httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: bucket}, IDs: some})
		dropped, left = dropped+change.Dropped, append(left, notDead...)
		if err != nil {
			return dropped, left, err
		}
	}
	return dropped, left, nil
}
