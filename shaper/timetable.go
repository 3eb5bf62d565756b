package shaper

import (
	"fmt"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/schedule"
)

// CalendarLine is a line of a bucket's rate calendar: between two times of day the bucket leaks at another rate.
type CalendarLine struct {
	From, To string         // times of day, such as "22:00" and "06:00"
	Days     string         // on which From is, such as "mon-fri" or "sat,sun"; "" means all
	Timezone string         // a name such as "Europe/Paris"; "" means UTC
	Rate     admission.Rate // instead of the bucket's
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
