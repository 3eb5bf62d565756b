package opsview

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Schedule is a schedule with its state.
type Schedule struct {
	Name     string `json:"name"`
	Bucket   string `json:"bucket"`
	Cron     string `json:"cron" jsonschema:"example=0 2 * * *"`
	Timezone string `json:"timezone" jsonschema:"example=Europe/Paris"`
	CatchUp  string `json:"catch_up" jsonschema:"enum=none,enum=last,enum=all"`
	Overlap  string `json:"overlap" jsonschema:"enum=queue,enum=skip"`

	// Where it was declared.
	Source string `json:"source" jsonschema:"enum=config,enum=api"`

	// Its bucket is not in the configuration: it does not fire. Absent otherwise.
	Orphaned bool `json:"orphaned,omitempty"`

	// Only of one that was made through the API: the author of its last change.
	Made *MadeBy `json:"made,omitempty"`

	// The configuration has a schedule of this name for the bucket too, which applies when this one is removed. Absent otherwise.
	Waiting bool `json:"configured_too,omitempty"`

	// The next five fires, in its time zone; none while it is paused or orphaned, or before a dispatcher has seen it.
	Next []time.Time `json:"next"`

	// Only of a paused schedule.
	Paused *Pause `json:"paused,omitempty"`

	// Unexpected meanings of the cron line or the time zone: "either day fires", or a zone without summer time.
	Warnings []string `json:"warnings,omitempty"`

	// Why the job of the due fire was not admitted, such as bucket-full; absent if none waits.
	Blocked string `json:"blocked,omitempty"`

	// When an operator requested a fire that has not happened yet.
	Requested *time.Time `json:"requested,omitempty"`

	// The last fire whose job got in.
	Last *time.Time `json:"last,omitempty"`

	// The id of its job.
	LastJob string `json:"last_job,omitempty"`
	Fired   int64  `json:"fired"`

	// Fires that were given up.
	Missed int64 `json:"missed"`

	// Fires that were skipped because the previous job was unfinished.
	Skipped int64 `json:"skipped"`

	// Only in the response to a change: whether it changed anything.
	Changed *bool `json:"changed,omitempty"`

	// Only in the response to fire: the id that the job has, or will have.
	Job string `json:"job,omitempty"`
}

// MadeBy is the author of the last change.
type MadeBy struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
}

// ScheduleOf shows a schedule.
func ScheduleOf(s shaper.ScheduleInfo) Schedule {
	v := Schedule{
		Name: s.Name, Bucket: s.Bucket, Cron: s.Cron, Timezone: s.Timezone, CatchUp: string(s.CatchesUp()), Overlap: string(s.Overlap),
		Source: string(s.Source), Orphaned: s.Orphaned, Waiting: s.ConfiguredToo,
		Next: s.Next, Blocked: s.Blocked, Requested: moment(s.Requested), Last: moment(s.Last), LastJob: s.LastJob,
		Fired: s.Fired, Missed: s.Missed, Skipped: s.Skipped,
	}
	if rule, err := s.Rule(); err == nil {
		v.Warnings = rule.Warnings()
	}
	if v.Timezone == "" {
		v.Timezone = "UTC"
	}
	if v.Overlap == "" {
		v.Overlap = "queue"
	}
	if v.Next == nil {
		v.Next = []time.Time{}
	}
	if !s.Made.IsZero() {
		v.Made = &MadeBy{s.Made.UTC(), s.MadeBy}
	}
	if !s.Paused.IsZero() {
		v.Paused = &Pause{Since: s.Paused.UTC(), By: s.PausedBy, Reason: s.PausedReason}
	}
	return v
}

// ScheduleRun is the outcome of a fire, or of several in a row that were missed.
type ScheduleRun struct {
	// When it was to be; of several the first.
	Fire time.Time `json:"fire"`

	// When it was decided.
	At       time.Time `json:"at"`
	Lateness float64   `json:"lateness_seconds"`
	Outcome  string    `json:"outcome" jsonschema:"enum=fired,enum=missed,enum=skipped"`

	// The dispatcher that decided it.
	By string `json:"by,omitempty"`

	// The operator that requested it.
	AskedBy string `json:"asked_by,omitempty"`

	// The id of its job; for a skipped fire the id of the unfinished job.
	Job string `json:"job,omitempty"`

	// For a fire that fired: the current state of its job. `unknown`: the job has ended, and its outcome is no longer known, because the bucket has
	// forgotten its id after its dedupe_window.
	JobState string `json:"job_state,omitempty"`

	// How many jobs the fire enqueued: 1 for a fire that fired, otherwise 0.
	Jobs  int   `json:"jobs"`
	Count int64 `json:"count"`

	// late, overlap, or why the job did not get in.
	Reason string `json:"reason,omitempty"`
}

// ScheduleRunsOf shows the history of a schedule.
func ScheduleRunsOf(runs []shaper.ScheduleRun) []ScheduleRun {
	views := make([]ScheduleRun, len(runs))
	for i, r := range runs {
		views[i] = ScheduleRun{
			Fire: r.Fire.UTC(), At: r.At.UTC(), Lateness: r.Lateness().Seconds(), Outcome: string(r.Outcome), By: r.By, AskedBy: r.AskedBy,
			Job: r.Job, JobState: string(r.JobState), Jobs: r.Jobs, Count: r.Count, Reason: r.Reason,
		}
	}
	return views
}

// moment returns a time to show, nil for a zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
