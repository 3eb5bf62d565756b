package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/workers"
)

func (a *invocation) deadListCommand() *cobra.Command {
	var limit, offset int
	var filter deadFilter
	var after string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "list BUCKET",
		Short: "List dead letters, the newest first",
		Long: `List dead letters, the newest first, with why they died. Filters are combined with AND.
ATTEMPTS counts the attempts that used up one of max_attempts since the job was last put
back. Receivers and handlers get another number, which counts all deliveries of the job.`,
		Example: `  dispatcher dead list webhooks
  dispatcher dead list webhooks --limit 100 --offset 100
  dispatcher dead list webhooks --cause attempts-exhausted --flow acme --since 2h
  dispatcher dead list webhooks --json | jq -r '.[].id'`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10_000 || offset < 0 {
				return wrongUsage(cmd, "want a --limit of 1 to 10000 and an --offset of 0 or more")
			}
			filtered, err := filter.read(cmd)
			if err != nil {
				return err
			}
			if filtered = filtered || after != ""; filtered && offset > 0 {
				return wrongUsage(cmd, "--offset counts all dead letters: go on behind a filter with --after")
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				if filtered {
					return a.deadFind(ctx, c, args[0], filter.DeadFilter, after, limit)
				}
				return a.deadList(ctx, c, args[0], offset, limit)
			})
		},
	})
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most this `number`")
	cmd.Flags().IntVar(&offset, "offset", 0, "leave out this `number` of the newest")
	cmd.Flags().StringVar(&after, "after", "", "continue after this `cursor` of an earlier list")
	filter.flags(cmd)
	return cmd
}

func (a *invocation) deadList(ctx context.Context, c *api, bucket string, offset, limit int) error {
	letters := []*opsview.Job{}
	for len(letters) < limit {
		n := min(limit-len(letters), pageOfJobs)
		page, err := c.dead(ctx, httpapi.DeadQuery{BucketName: httpapi.BucketName{Bucket: bucket}, Page: httpapi.Page{Limit: n}, Offset: new(offset + len(letters))})
		if err != nil {
			return err
		}
		if letters = append(letters, page.Dead...); len(page.Dead) == 0 {
			break
		}
	}
	view, err := c.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	if len(letters) == 0 && !a.json {
		a.note("bucket %q has %s", bucket, opsview.Count(view.Dead, "dead letter"))
		return nil
	}
	err = a.printDead(letters)
	if more := view.Dead - int64(offset+len(letters)); more > 0 && !a.json {
		a.note("%d more: --offset %d", more, offset+len(letters))
	}
	return err
}

// deadFilter holds the flags that filter dead letters.
type deadFilter struct {
	operator.DeadFilter

	flow, group, since, until string
}

// deadFilterFlags are their names.
var deadFilterFlags = []string{"cause", "reason", "flow", "group", "status", "since", "until", "text"}

func (f *deadFilter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Cause, "cause", "", "dead letters with this `cause`, such as attempts-exhausted or flow-disabled")
	flags.StringVar(&f.Reason, "reason", "", "dead letters whose last response has this `reason`, such as timeout or http_500")
	flags.StringVar(&f.flow, "flow", "", "jobs of the flow with this `name`")
	flags.StringVar(&f.group, "group", "", "jobs of the group with this `name`")
	flags.IntVar(&f.Status, "status", 0, "dead letters whose last response has this HTTP `status`")
	flags.StringVar(&f.since, "since", "", "dead letters that died at this `time` or later: RFC 3339, or how long ago, such as 2h")
	flags.StringVar(&f.until, "until", "", "dead letters that died before this `time`")
	flags.StringVar(&f.Text, "text", "", "dead letters with this `text` in the id, or in the detail or the body of the last response")
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

// hintAtCause prints a hint if a filter matches nothing because its reason is a cause. Workers of a program may use any reason, so it is not
// refused.
func (a *invocation) hintAtCause(filter *operator.DeadFilter, matched int) {
	if matched == 0 && slices.Contains(shaper.Causes(), filter.Reason) && !isDeathReason(filter.Reason) {
		a.note("%q is a cause, and --reason filters by the reason of the last response: did you mean --cause %[1]s?", filter.Reason)
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

func (a *invocation) deadReasonsCommand() *cobra.Command {
	var filter deadFilter
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "reasons BUCKET",
		Short: "Sum up why jobs died",
		Long: `Sum up why jobs died: the number of dead letters for each cause, reason and status, the
largest number first. A filter selects the dead letters to count. To redrive or drop the
dead letters of one line, give the words of the line as flags.`,
		Example: `  dispatcher dead reasons webhooks
  dispatcher dead reasons webhooks --since 2h
  dispatcher dead redrive webhooks --reason http_500 --status 503`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := filter.read(cmd); err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.deadReasons(ctx, c, args[0], filter.DeadFilter) })
		},
	})
	filter.flags(cmd)
	return cmd
}

func (a *invocation) deadReasons(ctx context.Context, c *api, bucket string, filter operator.DeadFilter) error {
	type key struct {
		cause, reason string
		status        int
	}
	at, reasons := map[key]int{}, []operator.DeadReason{}
	query := httpapi.DeadReasonsQuery{BucketName: httpapi.BucketName{Bucket: bucket}, DeadFilter: filter}
	for {
		part, err := call(ctx, c, httpapi.ShowDeadReasons, query)
		if err != nil {
			return named(err, "bucket", bucket)
		}
		for _, one := range part.Reasons {
			k := key{one.Cause, one.Reason, one.Status}
			if i, known := at[k]; known {
				reasons[i].DeadLetters, reasons[i].Oldest = reasons[i].DeadLetters+one.DeadLetters, one.Oldest
				continue
			}
			at[k] = len(reasons)
			reasons = append(reasons, one)
		}
		if query.Cursor = part.Next; query.Cursor == "" {
			break
		}
	}
	slices.SortStableFunc(reasons, func(a, b operator.DeadReason) int { return cmp.Compare(b.DeadLetters, a.DeadLetters) })
	now := time.Now()
	return a.printList(len(reasons), fmt.Sprintf("bucket %q has no such dead letters", bucket), reasons, func(w io.Writer) {
		fmt.Fprintln(w, "DEAD LETTERS\tCAUSE\tREASON\tSTATUS\tOLDEST\tNEWEST")
		for _, one := range reasons {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", one.DeadLetters, dash(one.Cause), dash(one.Reason), dash(status(one.Status)), since(&one.Oldest, now), since(&one.Newest, now))
		}
	})
}

func (a *invocation) deadShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:     "show BUCKET ID",
		Short:   "Show one dead letter in full",
		Long:    "Show one dead letter in full: why it died, how its last attempts ended, its last response and its payload.",
		Example: `  dispatcher dead show webhooks order-17`,
		Args:    positional("BUCKET", "ID"),
		RunE: a.onJob(func(ctx context.Context, c *api, bucket, id string) error {
			view, err := c.job(ctx, bucket, id)
			if err != nil {
				return err
			}
			if view.State != shaper.StateDead {
				return fail(exitNotFound, "job %q in bucket %q is no dead letter: it is %s", id, bucket, view.State)
			}
			return a.printJob(view, "")
		}),
	})
}
