package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) jobListCommand() *cobra.Command {
	var limit int
	var state, flow, group, since, after string
	cmd := &cobra.Command{
		Use:   "list BUCKET",
		Short: "List jobs that wait or are in flight",
		Long: `List jobs: first those in flight, then flow by flow those that wait. Jobs that come, go or
move meanwhile may be missing, and some may be listed twice. Dead letters have a list of
their own: "dispatcher dead list".`,
		Example: `  dispatcher job list webhooks
  dispatcher job list webhooks --state retrying --flow acme
  dispatcher job list webhooks --since 10m --json`,
		Args: positional("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10_000 {
				return wrongUsage(cmd, "want a --limit of 1 to 10000")
			}
			filter := operator.JobFilter{State: shaper.State(state)}
			if cmd.Flags().Changed("flow") {
				filter.Flow = &flow
			}
			if cmd.Flags().Changed("group") {
				filter.Group = &group
			}
			var err error
			if filter.Since, err = instantOf(since, time.Now()); err != nil {
				return wrongUsage(cmd, "--since %q: %v", since, err)
			}
			if err := filter.Validate(); err != nil {
				return wrongUsage(cmd, "%v", err)
			}
			return a.withStation(cmd.Context(), func(ctx context.Context, s *station) error {
				return a.jobList(ctx, s, args[0], filter, after, limit)
			})
		},
	}
	a.jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "those in this `state`: queued, scheduled, retrying or in_flight")
	f.StringVar(&flow, "flow", "", "those of the flow of this `name`")
	f.StringVar(&group, "group", "", "those of the group of this `name`")
	f.StringVar(&since, "since", "", "those that were enqueued at this `time` or later: RFC 3339, or how long ago, such as 2h")
	f.StringVar(&after, "after", "", "go on behind the `cursor` that an earlier list has told")
	f.IntVar(&limit, "limit", 50, "show at most this `number`")
	return cmd
}

func (a *app) jobList(ctx context.Context, s *station, bucket string, filter operator.JobFilter, cursor string, limit int) error {
	jobs := []shaper.JobInfo{}
	for {
		page, err := s.operator.Bucket(bucket).Find(ctx, filter, cursor, limit-len(jobs))
		if err != nil {
			return lookFault(err)
		}
		jobs, cursor = append(jobs, page.Jobs...), page.Next
		if cursor == "" || len(jobs) >= limit {
			break
		}
	}
	if len(jobs) == 0 && !a.json {
		a.note("bucket %q has no such job", bucket)
		return nil
	}
	views := make([]jobView, len(jobs))
	for i := range jobs {
		views[i] = viewJob(jobs[i])
		// `job show` tells what holds one back, and where it is.
		views[i].Why, views[i].BlockedBy, views[i].Position, views[i].ETA = "", nil, nil, nil
	}
	now := time.Now()
	err := a.print(views, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tGROUP\tFLOW\tENQUEUED\tATTEMPTS\tNEXT\tREASON")
		for i := range jobs {
			j := &jobs[i]
			next := "-"
			if !j.Due.IsZero() {
				next = relative(j.Due, now)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", j.ID, j.State, dash(line(j.Group, 40)), dash(line(j.Flow, 40)),
				relative(j.Enqueued, now), j.Attempts, next, dash(j.Last.Reason))
		}
	})
	if cursor != "" && err == nil && !a.json {
		a.note("there may be more: --after %s", cursor)
	}
	return err
}
