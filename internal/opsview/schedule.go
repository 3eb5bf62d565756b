package opsview

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Schedule is a schedule with its state.
type Schedule struct {
	Name      string      `json:"name"`
	Bucket    string      `json:"bucket"`
	Cron      string      `json:"cron"`
	Timezone  string      `json:"timezone"`
	CatchUp   string      `json:"catch_up"`
	Overlap   string      `json:"overlap"`
	Source    string      `json:"source"`                   // config or api
	Orphaned  bool        `json:"orphaned,omitempty"`       // its bucket is not in the configuration: it does not fire
	Made      *MadeBy     `json:"made,omitempty"`           // through the API
	Waiting   bool        `json:"configured_too,omitempty"` // the configuration has one of this name too, which waits until this one is removed
	Next      []time.Time `json:"next"`                     // the next five fires, in the schedule's time zone
	Paused    *Pause      `json:"paused,omitempty"`
	Blocked   string      `json:"blocked,omitempty"`   // why the job of the fire that is due has not got in
	Requested *time.Time  `json:"requested,omitempty"` // when an operator asked for a fire that has not been yet
	Last      *time.Time  `json:"last,omitempty"`      // the last fire whose job got in
	LastJob   string      `json:"last_job,omitempty"`
	Fired     int64       `json:"fired"`
	Missed    int64       `json:"missed"`
	Skipped   int64       `json:"skipped"`

	// Only in the answer to a change.
	Changed *bool  `json:"changed,omitempty"`
	Job     string `json:"job,omitempty"` // the id of the job of the fire that was asked for
}

// MadeBy says who made or changed something last.
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

// ScheduleRun is what became of a fire, or of several in a row that were missed.
type ScheduleRun struct {
	Fire     time.Time `json:"fire"` // when it was to be; of several the first
	At       time.Time `json:"at"`   // when it was decided
	Lateness float64   `json:"lateness_seconds"`
	Outcome  string    `json:"outcome"`
	By       string    `json:"by,omitempty"`       // the dispatcher
	AskedBy  string    `json:"asked_by,omitempty"` // the operator
	Job      string    `json:"job,omitempty"`
	JobState string    `json:"job_state,omitempty"` // of that job now; unknown: it has ended, and its id is not remembered any more
	Jobs     int       `json:"jobs"`                // that the fire made
	Count    int64     `json:"count"`
	Reason   string    `json:"reason,omitempty"`
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

// moment is a time to show, nil where there is none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
