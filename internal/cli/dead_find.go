package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/progress"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/workers"
)

// deadFilter holds the flags that filter dead letters.
type deadFilter struct {
	operator.DeadFilter

	flow, group, since, until string
}

// deadFilterFlags are their names.
var deadFilterFlags = []string{"cause", "reason", "flow", "group", "status", "since", "until", "text"}

func (f *deadFilter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Cause, "cause", "", "those of this `cause`, such as attempts-exhausted or flow-disabled")
	flags.StringVar(&f.Reason, "reason", "", "those whose last response has this `reason`, such as timeout or http_500")
	flags.StringVar(&f.flow, "flow", "", "those of the flow of this `name`")
	flags.StringVar(&f.group, "group", "", "those of the group of this `name`")
	flags.IntVar(&f.Status, "status", 0, "those whose last response has this `status` of HTTP")
	flags.StringVar(&f.since, "since", "", "those that died at this `time` or later: RFC 3339, or how long ago, such as 2h")
	flags.StringVar(&f.until, "until", "", "those that died before this `time`")
	flags.StringVar(&f.Text, "text", "", "those with this `text` in the id, or in the detail or the body of the last response")
}

// read turns the flags into the filter, and reports whether there is any. Empty flags, as of an empty variable, would match all dead letters: they are
// refused.
func (f *deadFilter) read(cmd *cobra.Command) (given bool, err error) {
	if cmd.Flags().Changed("flow") {
		f.Flow = &f.flow
	}
	if cmd.Flags().Changed("group") {
		f.Group = &f.group
	}
	now := time.Now()
	if f.Since, err = opsview.Instant(f.since, now); err != nil {
		return false, wrongUsage(cmd, "--since %q: %v", f.since, err)
	}
	if f.Until, err = opsview.Instant(f.until, now); err != nil {
		return false, wrongUsage(cmd, "--until %q: %v", f.until, err)
	}
	if isDeathReason(f.Cause) && !slices.Contains(shaper.Causes(), f.Cause) {
		return false, wrongUsage(cmd, "--cause %s: that is no cause, but a reason of a last response: use --reason %[1]s", f.Cause)
	}
	if err := f.Validate(); err != nil {
		return false, wrongUsage(cmd, "%v", err)
	}
	given = slices.ContainsFunc(deadFilterFlags, cmd.Flags().Changed)
	if given && f.DeadFilter == (operator.DeadFilter{}) {
		return false, wrongUsage(cmd, "the filter is empty, and would mean every dead letter: say which, or leave it out")
	}
	return given, nil
}

// isDeathReason reports whether a word is a reason of the workers of this program.
func isDeathReason(word string) bool {
	return slices.Contains(workers.Reasons(), word) || statusReason.MatchString(word)
}

// statusReason is the reason of a status of HTTP.
var statusReason = regexp.MustCompile(`^http_[1-5][0-9][0-9]$`)

// hintAtCause prints a hint if a filter matches nothing because its reason is the word of a cause. Workers of a program may use any reason, so it is not
// refused.
func (a *invocation) hintAtCause(filter *operator.DeadFilter, matched int) {
	if matched == 0 && slices.Contains(shaper.Causes(), filter.Reason) && !isDeathReason(filter.Reason) {
		a.note("%q is the word of a cause, and --reason means that of the last response: did you mean --cause %[1]s?", filter.Reason)
	}
}

// deadFind lists the dead letters that a filter matches, the newest first.
func (a *invocation) deadFind(ctx context.Context, c *api, bucket string, filter operator.DeadFilter, cursor string, limit int) error {
	letters, query := []*opsview.Job{}, httpapi.DeadQuery{BucketName: httpapi.BucketName{Bucket: bucket}, DeadFilter: filter}
	for next := cursor; ; {
		query.Cursor, query.Limit = next, min(limit-len(letters), pageOfJobs)
		page, err := c.dead(ctx, query)
		if err != nil {
			return err
		}
		letters, next = append(letters, page.Dead...), page.Next
		if cursor = next; next == "" || len(letters) >= limit {
			break
		}
	}
	a.hintAtCause(&filter, len(letters))
	if len(letters) == 0 && !a.json {
		a.note("bucket %q has no such dead letter", bucket)
		return nil
	}
	if err := a.printDead(letters); err != nil {
		return err
	}
	if cursor != "" && !a.json {
		a.note("there may be more: --after %s", cursor)
	}
	return nil
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

func (a *invocation) deadExportCommand() *cobra.Command {
	var filter deadFilter
	cmd := &cobra.Command{
		Use:   "export BUCKET",
		Short: "Write dead letters to stdout, one JSON object a line",
		Long: `Write dead letters to stdout as NDJSON, the newest first: each line has the job with its
payload, why it died, and how its last attempts ended. Credentials in headers are left out.`,
		Example: `  dispatcher dead export webhooks > dead.ndjson
  dispatcher dead export webhooks --cause flow-disabled --flow acme | jq -r .id`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := filter.read(cmd); err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				return a.deadExport(ctx, c, args[0], filter.DeadFilter)
			})
		},
	}
	filter.flags(cmd)
	return cmd
}

func (a *invocation) deadExport(ctx context.Context, c *api, bucket string, filter operator.DeadFilter) error {
	lines := json.NewEncoder(a.out)
	lines.SetEscapeHTML(false)
	query := httpapi.DeadQuery{
		BucketName: httpapi.BucketName{Bucket: bucket}, DeadFilter: filter, Page: httpapi.Page{Limit: pageOfJobs, Payload: true},
	}
	for written := 0; ; {
		page, err := c.dead(ctx, query)
		if err != nil {
			return err
		}
		written += len(page.Dead)
		for _, letter := range page.Dead {
			if err := lines.Encode(letter); err != nil {
				return fmt.Errorf("write a dead letter: %w", err)
			}
		}
		if query.Cursor = page.Next; page.Next == "" {
			a.hintAtCause(&filter, written)
			return nil
		}
	}
}

// printDead prints a table of dead letters.
func (a *invocation) printDead(letters []*opsview.Job) error {
	now := time.Now()
	return a.print(letters, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tFLOW\tDIED\tATTEMPTS\tCAUSE\tREASON\tDETAIL")
		for _, letter := range letters {
			last := deref(letter.LastResponse)
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", letter.ID, dash(line(deref(letter.Flow), 40)), since(letter.DiedAt, now), deref(letter.Attempts),
				dash(last.Cause), dash(last.Reason), dash(line(last.Detail, 60)))
		}
	})
}

// dead lists dead letters.
func (c *api) dead(ctx context.Context, query httpapi.DeadQuery) (*opsview.DeadPage, error) {
	page, err := call(ctx, c, httpapi.ListDead, query)
	return page, named(err, "bucket", query.Bucket)
}
