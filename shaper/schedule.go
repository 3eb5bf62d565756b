package shaper

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/schedule"
)

// Bounds of schedules.
const (
	MaxSchedules       = 1000     // per bucket
	MaxScheduleBytes   = 64 << 10 // of the payload
	maxDefinitionBytes = 96 << 10 // of the whole definition, as stored in Redis
)

// Schedule enqueues a job at the times of a cron line, by the clock of Redis. Any number of dispatchers may fire the schedules of their buckets;
// exactly one of them enqueues the job of each fire.
//
// The bucket's limits do not apply, as no caller sends the job. Its bounds do: while the bucket is full, the fire stays due until its job is enqueued
// or CatchUp gives it up.
type Schedule struct {
	Name     string           `json:"name"`               // unique among all schedules of a configuration
	Cron     string           `json:"cron"`               // see schedule.Parse
	Timezone string           `json:"timezone,omitempty"` // a name such as "Europe/Paris"; "" means UTC
	CatchUp  schedule.CatchUp `json:"catch_up,omitempty"` // "" means last
	Overlap  schedule.Overlap `json:"overlap,omitempty"`  // "" means queue
	Job      ScheduledJob     `json:"job"`
}

// ScheduledJob holds the fields of a schedule's jobs: see [Job].
type ScheduledJob struct {
	Flow        string              `json:"flow,omitempty"`
	Group       string              `json:"group,omitempty"`
	URL         string              `json:"url,omitempty"`
	Method      string              `json:"method,omitempty"`
	Headers     map[string][]string `json:"headers,omitempty"`
	Payload     []byte              `json:"payload,omitempty"`
	Priority    Priority            `json:"priority,omitempty"`
	MaxAttempts int                 `json:"max_attempts,omitempty"`
	ExpiresIn   time.Duration       `json:"expires_in,omitempty"`
}

// Rule returns the rule of when the schedule fires. The error names what is wrong with Cron or Timezone.
func (s Schedule) Rule() (*schedule.Rule, error) { return schedule.Parse(s.Cron, s.Timezone, s.Name) }

// CatchesUp returns CatchUp, or its default.
func (s Schedule) CatchesUp() schedule.CatchUp {
	if s.CatchUp == "" {
		return schedule.CatchUpLast
	}
	return s.CatchUp
}

// JobOf returns the job of one fire, without its id.
func (s Schedule) JobOf(bucket string) Job {
	j := s.Job
	return Job{
		Bucket: bucket, Flow: j.Flow, Group: j.Group, URL: j.URL, Method: j.Method, Headers: j.Headers, Payload: j.Payload,
		Priority: j.Priority, MaxAttempts: j.MaxAttempts, ExpiresIn: j.ExpiresIn,
	}
}

// ScheduleJobID returns the id of the job of a fire, such as "schedule-nightly-20261123T020000Z". The id of a fire that an operator requested
// includes microseconds.
func ScheduleJobID(name string, fire time.Time) string {
	safe := strings.ReplaceAll(name, ".", "_")
	if safe != name { // another schedule's name may have the underscores
		sum := sha256.Sum256([]byte(name))
		safe += "-" + hex.EncodeToString(sum[:4])
	}
	fire = fire.UTC()
	stamp := fire.Format("20060102T150405Z")
	if fire.Nanosecond() != 0 {
		stamp = strings.Replace(fire.Format("20060102T150405.000000Z"), ".", "_", 1)
	}
	return ScheduleID + safe + "-" + stamp
}

// Validate reports every fault of the schedule of a bucket, joined, or nil. Each begins with the key of the configuration.
func (s Schedule) Validate(b *Bucket) error {
	var f faults
	f.name(s.Name)
	if _, err := s.Rule(); err != nil {
		key, reason, _ := strings.Cut(err.Error(), " ")
		f.add(key, "%s", reason)
	}
	if c := s.CatchUp; c != "" && !slices.Contains([]schedule.CatchUp{schedule.CatchUpNone, schedule.CatchUpLast, schedule.CatchUpAll}, c) {
		f.add("catch_up", "%q: want none, last or all", c)
	}
	if o := s.Overlap; o != "" && o != schedule.OverlapQueue && o != schedule.OverlapSkip {
		f.add("overlap", "%q: want queue or skip", o)
	}
	job := s.JobOf(b.Name)
	if err := job.Validate(min(b.MaxPayload, MaxScheduleBytes)); err != nil {
		f.errs = append(f.errs, err)
	}
	if _, err := b.Flow.NameOf(&job); err != nil {
		f.errs = append(f.errs, err)
	}
	if _, err := b.Group.NameOf(&job); err != nil {
		f.errs = append(f.errs, err)
	}
	if text, err := json.Marshal(s); err != nil || len(text) > maxDefinitionBytes {
		f.add("headers", "the schedule is larger than %d bytes", maxDefinitionBytes)
	}
	return errors.Join(f.errs...)
}

// validateSchedules reports the faults of all schedules of the bucket.
func (b *Bucket) validateSchedules() (errs []error) {
	if len(b.Schedules) > MaxSchedules {
		errs = append(errs, fmt.Errorf("schedules: there are %d: want at most %d for a bucket", len(b.Schedules), MaxSchedules))
	}
	names := make(map[string]bool, len(b.Schedules))
	for _, s := range b.Schedules {
		if names[s.Name] {
			errs = append(errs, fmt.Errorf("schedules: %q: is given twice", s.Name))
		}
		names[s.Name] = true
		if err := s.Validate(b); err != nil {
			errs = append(errs, fmt.Errorf("schedules: %q: %w", s.Name, err))
		}
	}
	return errs
}

// ScheduleInfo is a schedule with its state, for operators.
type ScheduleInfo struct {
	Schedule
	Bucket   string
	Orphaned bool // the configuration lacks the bucket: the schedule does not fire

	Source        ScheduleSource
	Made          time.Time // of a schedule of the API: when it was made or last changed
	MadeBy        string    // by whom
	ConfiguredToo bool      // the configuration has a schedule of this name too, which applies once this one is removed

	Next         []time.Time // the next five fires; none while it is paused or orphaned, or before a dispatcher has read it
	Paused       time.Time   // since when; zero: not paused
	PausedBy     string
	PausedReason string
	Blocked      string    // why the job of the due fire was refused; "" it was not, or no fire is due
	Requested    time.Time // when an operator requested a fire that is still pending; zero: none did
	Last         time.Time // the last fire whose job was enqueued; zero: none
	LastJob      string    // its id

	Fired, Missed, Skipped int64 // since Redis has known the schedule
}

// ScheduleSource is where a schedule was defined.
type ScheduleSource string

// The sources of schedules.
const (
	ScheduleOfConfig ScheduleSource = "config"
	ScheduleOfAPI    ScheduleSource = "api" // kept until it is removed by the API
)

// StateForgotten is the state of an ended job whose id is no longer remembered: see DedupeWindow of [Bucket].
const StateForgotten State = "unknown"

// ScheduleOutcome is the result of a fire.
type ScheduleOutcome string

// The outcomes of a fire.
const (
	ScheduleFired   ScheduleOutcome = "fired"   // its job was enqueued
	ScheduleMissed  ScheduleOutcome = "missed"  // it was given up
	ScheduleSkipped ScheduleOutcome = "skipped" // the job of the previous fire was unfinished
)

// ScheduleOutcomes lists them.
func ScheduleOutcomes() []ScheduleOutcome {
	return []ScheduleOutcome{ScheduleFired, ScheduleMissed, ScheduleSkipped}
}

// ScheduleRun is the result of a fire, or of several consecutive ones that were missed.
type ScheduleRun struct {
	Fire    time.Time // its scheduled time; of several fires the first time
	At      time.Time // when the result was decided
	By      string    // the dispatcher that decided it
	AskedBy string    // the operator that requested it; "": the schedule did
	Outcome ScheduleOutcome
	Job     string // the id of its job; of a skipped fire the id of the unfinished job
	Count   int64  // of consecutive missed fires; else 1
	Jobs    int    // made by the fire: 1 if it fired, else 0

	JobState State // current state of that job, or StateForgotten; "" without a job

	Reason string // of a missed fire: "late", or why its job was refused; of a skipped fire: "overlap"
}

// Lateness returns how long after its time the job was enqueued.
func (r ScheduleRun) Lateness() time.Duration { return r.At.Sub(r.Fire) }
