package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

const jobListLong = `List jobs: first those in flight, then flow by flow those that wait. Jobs that come, go or
move meanwhile may be missing, and some may be listed twice. Dead letters have a list of
their own: "dispatcher dead list". With --state done, those are listed whose results the
bucket keeps (result_retention), the newest first: the log of deliveries. With --state any
all of these are listed: with --flow it is the story of one customer.

Times are in UTC. Jobs that wait have the time at which they are due: a queued job is due now,
and "job show" estimates when it leaves. --since and --until mean the time at which a job was
enqueued, of dead letters when it died, and of jobs that are done when one of their attempts
was sent: each attempt of that period is a line. For "what did we answer at 14:03?", a job
that was sent again later is found too, as long as the bucket keeps its attempts.`

const jobListExample = `  dispatcher job list webhooks
  dispatcher job list webhooks --state retrying --flow acme
  dispatcher job list webhooks --state done --flow acme
  dispatcher job list webhooks --state any --flow acme
  dispatcher job list webhooks --since 10m --json
  dispatcher job list webhooks --state done --since 2026-11-30T14:03:00Z --until 2026-11-30T14:04:00Z`

func (a *invocation) jobListCommand() *cobra.Command {
	var limit int
	var state, flow, group, since, until, after string
	cmd := a.jsonFlag(&cobra.Command{
		Use:     "list BUCKET",
		Short:   "List jobs that wait or are in flight, or that are done",
		Long:    jobListLong,
		Example: jobListExample,
		Args:    positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10_000 {
				return wrongUsage(cmd, "want a --limit of 1 to 10000")
			}
			at, err := opsview.Instant(since, time.Now())
			if err != nil {
				return wrongUsage(cmd, "--since %q: %v", since, err)
			}
			before, err := opsview.Instant(until, time.Now())
			if err != nil {
				return wrongUsage(cmd, "--until %q: %v", until, err)
			}
			anyState := state == stateAny
			if anyState {
				state = ""
			}
			if anyState && after != "" {
				return wrongUsage(cmd, "--after goes with one --state: %s lists three, each from its beginning", stateAny)
			}
			filter := operator.JobFilter{State: shaper.State(state)}
			if err := filter.Validate(); err != nil {
				return wrongUsage(cmd, "--%v or %s", err, stateAny)
			}
			query := httpapi.JobQuery{BucketName: theBucket(args), State: filter.State, Since: at, Until: before, Page: httpapi.Page{Cursor: after}}
			query.Flow, query.Group = textFlag(cmd, "flow", &flow), textFlag(cmd, "group", &group)
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
				list := a.jobList
				if anyState {
					list = a.jobStory
				}
				return list(ctx, c, query, limit)
			})
		},
	})
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "jobs in this `state`: queued, scheduled, retrying, in_flight, waiting (the first three), later (scheduled or retrying), done, or any")
	f.StringVar(&flow, "flow", "", "jobs of the flow with this `name`")
	f.StringVar(&group, "group", "", "jobs of the group with this `name`")
	f.StringVar(&since, "since", "", "jobs that were enqueued, died or were sent at this `time` or later: RFC 3339, or how long ago, such as 2h")
	f.StringVar(&until, "until", "", "jobs that were enqueued, died or were sent before this `time`: RFC 3339, or how long ago, such as 2h")
	f.StringVar(&after, "after", "", "continue after this `cursor` of an earlier list")
	f.IntVar(&limit, "limit", 50, "show at most this `number`")
	return cmd
}

// textFlag is the value of a flag, nil if the flag is not given.
func textFlag(cmd *cobra.Command, flag string, value *string) *string {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return value
}

// jobsOf returns at most limit jobs that a query matches, and the cursor after them.
func (a *invocation) jobsOf(ctx context.Context, c *api, query httpapi.JobQuery, limit int) (jobs []*opsview.Job, next string, err error) {
	jobs = []*opsview.Job{}
	for {
		query.Limit = min(limit-len(jobs), pageOfJobs)
		page, err := call(ctx, c, httpapi.ListJobs, query)
		if err != nil {
			return nil, "", named(err, "bucket", query.Bucket)
		}
		jobs, query.Cursor = append(jobs, page.Jobs...), page.Next
		if query.Cursor == "" || len(jobs) >= limit {
			return jobs, query.Cursor, nil
		}
	}
}

func (a *invocation) jobList(ctx context.Context, c *api, query httpapi.JobQuery, limit int) error {
	jobs, next, err := a.jobsOf(ctx, c, query, limit)
	if err != nil {
		return err
	}
	query.Cursor = next
	if len(jobs) == 0 && !a.json {
		if query.State == shaper.StateDone {
			return a.noneDone(ctx, c, &query)
		}
		a.note("bucket %q has no such job that waits or is in flight: --state done lists those that are done", query.Bucket)
		return nil
	}
	now := time.Now()
	err = a.print(jobs, func(w io.Writer) {
		if query.State == shaper.StateDone {
			deliveries(w, jobs, &query, now)
			return
		}
		waitingJobs(w, jobs, now)
	})
	switch {
	case err != nil || a.json:
	case query.Cursor != "":
		a.note("there may be more: --after %s", query.Cursor)
	case query.State == shaper.StateDone:
		a.note("that is all that the bucket keeps: done jobs for its result_retention, and without one those alone whose answer a client waited for")
	}
	return err
}

// waitingJobs lists jobs that wait or are in flight.
func waitingJobs(w io.Writer, jobs []*opsview.Job, now time.Time) {
	fmt.Fprintln(w, "ID\tSTATE\tGROUP\tFLOW\tENQUEUED\tATTEMPTS\tDUE\tREASON")
	for _, j := range jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", j.ID, j.State, dash(line(j.Group, 40)), dash(line(deref(j.Flow), 40)),
			atAndSince(j.EnqueuedAt, now), deref(j.Attempts), atAndSince(j.Due, now), dash(deref(j.LastResponse).Reason))
	}
}

// noneDone explains why no done job was found.
func (a *invocation) noneDone(ctx context.Context, c *api, query *httpapi.JobQuery) error {
	bucket, err := call(ctx, c, httpapi.ShowBucket, query.BucketName)
	if err != nil {
		return named(err, "bucket", query.Bucket)
	}
	a.note("%s", bucket.NoneDone(query.Asked()))
	return nil
}

// deliveries lists jobs that are done, by their last delivery, or by each one that departed in the period of the query.
func deliveries(w io.Writer, jobs []*opsview.Job, query *httpapi.JobQuery, now time.Time) {
	fmt.Fprintln(w, "ID\tGROUP\tFLOW\tSENT\tTOOK\tSTATUS\tREASON\tATTEMPT")
	for _, j := range jobs {
		sent := j.SentWithin(query.Since, query.Until)
		if len(sent) == 0 { // nothing was sent
			sent = []opsview.Attempt{{}}
		} else if query.Since.IsZero() && query.Until.IsZero() {
			sent = sent[len(sent)-1:]
		}
		for i := range sent {
			one := &sent[i]
			took := time.Duration(one.Took * float64(time.Second)).Round(time.Millisecond)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\n", j.ID, dash(line(j.Group, 40)), dash(line(deref(j.Flow), 40)), atAndSince(instantOf(one.At), now), took,
				dash(status(one.Status)), dash(one.Reason), one.Number, max(one.Number, deref(j.Attempts)))
		}
	}
}

// instantOf is a time as views have it: nil of the zero time.
func instantOf(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// atAndSince formats a time in UTC and how long ago it was: "14:03:12Z, 2m ago". It has the date if it is more than half a day away.
func atAndSince(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	layout := "15:04:05Z"
	if t.Sub(now).Abs() > 12*time.Hour {
		layout = "2006-01-02T15:04:05Z"
	}
	return t.UTC().Format(layout) + ", " + since(t, now)
}

// stateAny is the --state of all lists of jobs together.
const stateAny = "any"

// jobStory lists the jobs of all states that a query matches, at most limit of each list. Jobs that wait or are in flight come first, then dead letters,
// then done jobs that are kept, the newest first.
func (a *invocation) jobStory(ctx context.Context, c *api, query httpapi.JobQuery, limit int) error {
	waiting, moreWait, err := a.jobsOf(ctx, c, query, limit)
	if err != nil {
		return err
	}
	dead, err := c.dead(ctx, httpapi.DeadQuery{
		BucketName: query.BucketName, Page: httpapi.Page{Limit: min(limit, pageOfJobs)},
		DeadFilter: operator.DeadFilter{Flow: query.Flow, Group: query.Group, Since: query.Since, Until: query.Until},
	})
	if err != nil {
		return err
	}
	query.State = shaper.StateDone
	done, moreDone, err := a.jobsOf(ctx, c, query, limit)
	if err != nil {
		return err
	}
	all := slices.Concat(waiting, dead.Dead, done)
	if len(all) == 0 && !a.json {
		a.note("bucket %q has no such job: none waits, is in flight, dead, or done and kept (result_retention)", query.Bucket)
		return nil
	}
	now := time.Now()
	err = a.print(all, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tGROUP\tFLOW\tENQUEUED\tENDED\tATTEMPTS\tSTATUS\tREASON")
		for _, j := range all {
			ended := j.DiedAt
			if j.State == shaper.StateDone {
				ended = j.DepartedAt
			}
			last := deref(j.LastResponse)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", j.ID, j.State, dash(line(j.Group, 40)), dash(line(deref(j.Flow), 40)),
				atAndSince(j.EnqueuedAt, now), atAndSince(ended, now), deref(j.Attempts), dash(status(last.Status)), dash(last.Reason))
		}
	})
	if more := map[string]bool{"--state waiting": moreWait != "", "dead list": dead.Next != "", "--state done": moreDone != ""}; err == nil && !a.json {
		for _, list := range []string{"--state waiting", "dead list", "--state done"} {
			if more[list] {
				a.note("there are more than %d: raise --limit, or use %s", limit, list)
			}
		}
	}
	return err
}
