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
	To       string         `setting:"to"`       // the next such time of day after From
	Days     string         `setting:"days"`     // the days of From, such as "mon-fri" or "sat,sun"; "" means all
	Timezone string         `setting:"timezone"` // a name such as "Europe/Paris"; "" means UTC
	Rate     admission.Rate `setting:"rate"`     // instead of the bucket's
}

// Plan returns when the bucket leaks and how fast: Drain and Calendar, for package schedule.
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
			continue // the plan reports it
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

// Hours says whether a bucket leaks now, and when that changes.
type Hours struct {
	Open  bool
	Rate  admission.Rate // effective now; of a closed bucket the rate at its opening, as far as known
	Until time.Time      // when Open or Rate changes; zero: never, as far as known
	Opens time.Time      // when it is open next, possibly now; zero: not before an operator drains it

	Finish     time.Time // by which its jobs are to have departed, in the current or next window; zero: the window names none
	FinishJobs int64     // jobs to depart by then
	TooSlow    bool      // the rate that they need exceeds the allowed one; not set for a closed bucket

	Opened time.Time // of an open bucket: when its window or drain began; zero: unknown, or it is always open
}

// Late is why jobs will be left at a finish.
type Late string

// The values of Late.
const (
	NotLate    Late = ""       // all jobs will have departed
	LateRate   Late = "rate"   // the needed rate exceeds the allowed one
	LateBehind Late = "behind" // something holds jobs back, or they depart too slowly
)

// DrainRun is a drain that an operator started.
type DrainRun struct {
	ID         string
	By         string // the operator that started it
	State      DrainState
	Since      time.Time
	Ended      time.Time      // zero while it runs
	Rate       admission.Rate // zero: the effective rate
	Max        int64          // departures after which it ends; 0: any number
	Departed   int64          // permits handed out, including returned ones
	UntilEmpty bool
}

// DrainState is the state of a drain.
type DrainState string

// The values of DrainState.
const (
	DrainRuns    DrainState = "running"
	DrainDone    DrainState = "done"    // Max departures were reached, or the bucket was empty
	DrainStopped DrainState = "stopped" // by an operator
)
