package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

func (a *invocation) scheduleCommand() *cobra.Command {
	return a.serverFlags(group(&cobra.Command{
		Use:   "schedule",
		Short: "Look at schedules, make them, pause them and have them fire",
		Long: `Look at schedules, which enqueue jobs at the times of a cron line, and change them: all
dispatchers obey at once, and after every restart. A schedule is declared as [[schedules]]
in the configuration, or made by ` + "`schedule set`" + ` and kept in Redis until ` + "`schedule remove`" + `.`,
		Example: `  dispatcher schedule list
  dispatcher schedule show nightly-report
  dispatcher schedule set weekly-report --cron "0 6 * * MON" --bucket reports --payload '{"report":"weekly"}'
  dispatcher schedule remove weekly-report
  dispatcher schedule pause nightly-report --reason "the warehouse moves"
  dispatcher schedule resume nightly-report
  dispatcher schedule fire nightly-report`,
	}, a.scheduleSetCommand(), a.scheduleRemoveCommand(), a.scheduleListCommand(), a.scheduleShowCommand(), a.schedulePauseCommand(), a.scheduleResumeCommand(), a.scheduleFireCommand()))
}

func (a *invocation) scheduleListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List all schedules with their next fires",
		Long: `List all schedules. NEXT is the next fire, in the time zone of the schedule; --json has
the next five. SOURCE is config, or api of one that was made by ` + "`schedule set`" + `. A schedule whose
bucket left the configuration does not fire, and is listed last.`,
		Example: `  dispatcher schedule list
  dispatcher schedule list --json | jq '.[] | {name, next}'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.withAPI(cmd.Context(), a.scheduleList) },
	})
}

func (a *invocation) scheduleList(ctx context.Context, c *api) error {
	list, err := call(ctx, c, httpapi.ListSchedules, struct{}{})
	if err != nil {
		return err
	}
	return a.printList(len(list.Schedules), "there are no schedules: declare one as [[schedules]] in the configuration, and let a dispatcher run, or make one with `dispatcher schedule set`", list.Schedules, func(w io.Writer) {
		fmt.Fprintln(w, "SCHEDULE\tBUCKET\tSOURCE\tCRON\tTIMEZONE\tNEXT\tLAST\tFIRED\tMISSED\tSKIPPED\tNOTE")
		for i := range list.Schedules {
			v := &list.Schedules[i]
			last := "-"
			if v.Last != nil {
				last = stamp(*v.Last)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", v.Name, v.Bucket, v.Source, v.Cron, v.Timezone, nextFire(v), last, v.Fired, v.Missed, v.Skipped, dash(scheduleNote(v)))
		}
	})
}

// fireLayout shows a fire in the time zone of its schedule.
const fireLayout = "Mon 2006-01-02 15:04:05 MST"

func nextFire(v *opsview.Schedule) string {
	if len(v.Next) == 0 {
		return "-"
	}
	return inZone(v, v.Next[0])
}

// scheduleNote returns what needs attention in a schedule.
func scheduleNote(v *opsview.Schedule) string {
	switch {
	case v.Orphaned:
		return "does not fire: the bucket is not in the configuration"
	case v.Waiting:
		return "the configuration has one of this name too: it comes when this one is removed"
	case v.Paused != nil:
		return "paused by " + v.Paused.By
	case v.Blocked != "":
		return "blocked: " + v.Blocked
	case v.Requested != nil:
		return "a fire was asked for"
	case len(v.Next) == 0:
		return "no dispatcher has seen it yet"
	}
	return ""
}

func (a *invocation) scheduleShowCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one schedule, its next five fires and its last ones",
		Long: `Show one schedule in full: its next five fires, and what became of the last twenty and of
their jobs. How a job ended is known until the dedupe_window of the bucket ends. The job
of a fire is shown by ` + "`dispatcher job show BUCKET ID`" + `.`,
		Example: `  dispatcher schedule show nightly-report
  dispatcher schedule show nightly-report --json | jq .runs`,
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error { return a.scheduleShow(ctx, c, args[0]) })
		},
	})
}

func (a *invocation) scheduleShow(ctx context.Context, c *api, name string) error {
	var v struct {
		opsview.Schedule
		Runs []opsview.ScheduleRun `json:"runs"`
	}
	of := httpapi.ScheduleName{Schedule: name}
	shown, err := call(ctx, c, httpapi.ShowSchedule, of)
	if err != nil {
		return err
	}
	runs, err := call(ctx, c, httpapi.ShowScheduleRuns, of)
	if err != nil {
		return err
	}
	v.Schedule, v.Runs = *shown, runs.Runs
	return a.print(v, func(w io.Writer) {
		r := rows{w, time.Now()}
		r.row("schedule", "%s", v.Name)
		r.row("bucket", "%s", v.Bucket)
		if r.row("source", "%s", v.Source); v.Made != nil {
			r.row("made", "by %s at %s", v.Made.By, stamp(v.Made.At))
		}
		r.row("cron", "%s in %s", v.Cron, v.Timezone)
		r.row("missed fires", "catch_up %s", v.CatchUp)
		r.row("overlap", "%s", v.Overlap)
		r.row("fires", "%d fired, %d missed, %d skipped", v.Fired, v.Missed, v.Skipped)
		if note := scheduleNote(&v.Schedule); note != "" {
			r.row("note", "%s", note)
		}
		for _, warning := range v.Warnings {
			r.row("warning", "%s", warning)
		}
		for _, fire := range v.Next {
			r.row("next", "%s (%s)", inZone(&v.Schedule, fire), relative(fire, r.now))
		}
		for _, run := range v.Runs {
			r.row("run", "%s", runText(&v.Schedule, run))
		}
	})
}

func runText(v *opsview.Schedule, run opsview.ScheduleRun) string {
	text := inZone(v, run.Fire) + " " + run.Outcome
	switch {
	case run.Count > 1:
		text += fmt.Sprintf(" with %d more", run.Count-1)
	case run.Job != "":
		text += fmt.Sprintf(" %.3fs late, job %s", run.Lateness, run.Job)
		if run.JobState == string(shaper.StateForgotten) {
			text += ", which has ended: how is no longer known"
		} else if run.JobState != "" {
			text += ", which is " + run.JobState
		}
	}
	if run.Reason != "" {
		text += " (" + run.Reason + ")"
	}
	if run.AskedBy != "" {
		text += ", asked for by " + run.AskedBy
	}
	return text
}

// theSchedule returns the input of operations that need only the name of a schedule.
func theSchedule(args []string) httpapi.ScheduleName { return httpapi.ScheduleName{Schedule: args[0]} }

func (a *invocation) schedulePauseCommand() *cobra.Command {
	var reason string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "pause NAME",
		Short: "Stop the fires of a schedule",
		Long: `Stop the fires of a schedule, in all processes, at once and across restarts, until it is
resumed. ` + "`schedule fire`" + ` works while it is paused. To pause a schedule twice is harmless.`,
		Example: `  dispatcher schedule pause nightly-report --reason "the warehouse moves"
  dispatcher schedule resume nightly-report`,
		Args: positional("NAME"),
		RunE: on(a, "schedule", httpapi.PauseSchedule, asking(func(args []string) httpapi.SchedulePause {
			return httpapi.SchedulePause{ScheduleName: theSchedule(args), PauseReason: httpapi.PauseReason{Reason: reason}}
		}), func(v *opsview.Schedule) string { return "paused: " + v.Name }),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why the schedule is paused: a `text` of at most 500 bytes")
	return cmd
}

func (a *invocation) scheduleResumeCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "resume NAME",
		Short: "Let a paused schedule fire again",
		Long: `Let a paused schedule fire again, from its next time on. Fires of the pause are not made up
for, whatever catch_up says. To resume a schedule that is not paused is harmless.`,
		Example: `  dispatcher schedule resume nightly-report`,
		Args:    positional("NAME"),
		RunE: on(a, "schedule", httpapi.ResumeSchedule, asking(theSchedule), func(v *opsview.Schedule) string {
			return resumedText(opsview.OutcomeOf(deref(v.Changed)), v.Name)
		}),
	})
}

func (a *invocation) scheduleFireCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "fire NAME",
		Short: "Have a schedule fire now",
		Long: `Have a schedule fire now, also while it is paused. A dispatcher enqueues the job within about
a second, if the bucket has room; else it waits for room. Its next regular fire stays. The
answer names the job. While such a fire waits, another request is the same one.`,
		Example: `  dispatcher schedule fire nightly-report`,
		Args:    positional("NAME"),
		RunE: on(a, "schedule", httpapi.FireSchedule, asking(theSchedule), func(v *opsview.Schedule) string {
			if !deref(v.Changed) {
				return fmt.Sprintf("a fire of %s waits already: job %s", v.Name, v.Job)
			}
			return fmt.Sprintf("%s fires now: job %s of bucket %s", v.Name, v.Job, v.Bucket)
		}),
	})
}
