package shaper

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/schedule"
)

// CalendarLine is a line of a bucket's rate calendar: between two times of day the bucket leaks at another rate.
type CalendarLine struct {
	From     string         `setting:"from"`     // a time of day, such as "22:00"
	To       string         `setting:"to"`       // the time of day that comes next after From
	Days     string         `setting:"days"`     // on which From is, such as "mon-fri" or "sat,sun"; "" means all
	Timezone string         `setting:"timezone"` // a name such as "Europe/Paris"; "" means UTC
	Rate     admission.Rate `setting:"rate"`     // instead of the bucket's
}

// Plan is when the bucket leaks and how fast: Drain and Calendar, for package schedule.
func (b Bucket) Plan() schedule.Plan {
	p := schedule.Plan{Drain: b.Drain}
	for _, line := range b.Calendar {
		p.Calendar = append(p.Calendar, schedule.Line{
			From: line.From, To: line.To, Days: line.Days, Timezone: line.Timezone, Rate: schedule.Rate{Count: line.Rate.Count, Per: line.Rate.Per},
		})
	}
	return p
}

// validatePlan reports what is wrong with Drain and Calendar, or with both together.
func (b Bucket) validatePlan() (errs []error) {
	for i, line := range b.Calendar {
		key := fmt.Sprintf("calendar[%d].rate", i)
		if line.Rate.IsZero() {
			continue // the plan says so
		}
		if err := line.Rate.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		} else if line.Rate.Unit != admission.UnitRequests {
			errs = append(errs, fmt.Errorf("%s: %q: only requests are paced in this version, not %s", key, line.Rate, line.Rate.Unit))
		}
	}
	if plan := b.Plan(); !plan.IsZero() {
		if _, err := plan.Timetable(b.Name, schedule.Rate{Count: b.Rate.Count, Per: b.Rate.Per}); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Hours is whether a bucket leaks now, and when that changes.
type Hours struct {
	Open  bool
	Rate  admission.Rate // that holds now or, of a closed bucket, when it opens, as far as that is known
	Until time.Time      // when that changes; zero: never, as far as is known
	Opens time.Time      // when it is open next, which may be now; zero: not before an operator drains it

	Finish     time.Time // by which jobs are to have left, of a closed bucket in its next window; zero: the window names none
	FinishJobs int64     // that are to leave by then
	TooSlow    bool      // the rate that they need is above the one that is allowed; not told of a closed bucket

	Opened time.Time // of an open bucket: when its window or its drain began; zero: not known, or it is open at all times
}

// Late says why jobs will be left at a finish.
type Late string

// What Late may be.
const (
	NotLate    Late = ""       // all will have left
	LateRate   Late = "rate"   // the rate that is needed is above the one that is allowed
	LateBehind Late = "behind" // something keeps jobs, or they depart too slowly
)

// DrainRun is a drain that an operator has asked for.
type DrainRun struct {
	ID         string
	By         string // the operator that asked for it
	State      DrainState
	Since      time.Time
	Ended      time.Time      // zero while it runs
	Rate       admission.Rate // zero: the one that is in force
	Max        int64          // departures after which it ends; 0: any number
	Departed   int64          // permits that were handed out: one that is given back counts
	UntilEmpty bool
}

// DrainState is how far a drain is.
type DrainState string

// What a DrainState may be.
const (
	DrainRuns    DrainState = "running"
	DrainDone    DrainState = "done"    // so many jobs have left, or the bucket was empty
	DrainStopped DrainState = "stopped" // by an operator
)
