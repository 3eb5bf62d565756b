package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

// TimetableQuery selects the time of a timetable.
type TimetableQuery struct {
	BucketName

	// Absent: now.
	From time.Time `json:"from" in:"query"`

	// At most 35 days later. Absent: seven days later.
	Until time.Time `json:"until" in:"query"`
}

// Timetable lists when a bucket is open and at which rate, and when its schedules fire.
type Timetable struct {
	Bucket string    `json:"bucket"`
	From   time.Time `json:"from"`

	// The end of the timetable: earlier than requested if there would be more than 1000 stretches or fires.
	Until     time.Time      `json:"until"`
	Stretches []OpenStretch  `json:"stretches"`
	Fires     []ScheduleFire `json:"fires"`
}

// OpenStretch is a period when a bucket is closed, or open at one rate.
type OpenStretch struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	Open  bool      `json:"open"`

	// The rate of the calendar, or the bucket's own. Absent while it is closed.
	Rate string `json:"rate,omitempty"`

	// It closes earlier, once the bucket is empty. Absent otherwise.
	UntilEmpty bool `json:"until_empty,omitempty"`

	// When all jobs are to be sent. Absent if the window names no finish.
	Finish *time.Time `json:"finish,omitempty"`
}

// ScheduleFire is a time at which a schedule enqueues a job.
type ScheduleFire struct {
	At       time.Time `json:"at"`
	Schedule string    `json:"schedule"`
}

// ShowTimetable shows when a bucket is open.
var ShowTimetable = &Operation[TimetableQuery, *Timetable]{
	ID: "showTimetable", Method: "GET", Path: "/v1/buckets/{bucket}/timetable", Roles: []apikey.Role{apikey.RoleRead},
	Answer:   "The stretches and the fires, the earliest first.",
	Commands: []string{"bucket timetable"},
	Summary:  "When a bucket is open and at which rate, and when its schedules fire",
	Description: `By its drain windows, its rate calendar and its schedules, whatever holds it up besides: a pause, a hold, a drain by an operator. Schedules that are
paused, or whose bucket left the configuration, do not fire.`,
}

const (
	maxTimetable   = 35 * 24 * time.Hour
	usualTimetable = 7 * 24 * time.Hour
	mostStretches  = 1000 // and fires
)

func (o *ops) showTimetable(r *http.Request, in *TimetableQuery) (*Timetable, error) {
	t := &Timetable{Bucket: in.Bucket, From: in.From, Until: in.Until, Stretches: []OpenStretch{}, Fires: []ScheduleFire{}}
	if t.From.IsZero() {
		t.From = time.Now()
	}
	t.From = t.From.UTC().Truncate(time.Second)
	if t.Until.IsZero() {
		t.Until = t.From.Add(usualTimetable)
	}
	t.Until = t.Until.UTC().Truncate(time.Second)
	if span := t.Until.Sub(t.From); span <= 0 || span > maxTimetable {
		return nil, invalid([]*shaper.FieldError{{Field: "until", Reason: "want a time behind from, and at most 35 days later"}})
	}
	info, err := o.buckets.Bucket(in.Bucket).Info(r.Context())
	if err != nil {
		return nil, err
	}
	plan, err := o.buckets.Bucket(in.Bucket).Plan(r.Context())
	if b := o.configured(in.Bucket); b != nil && !info.Configured { // nothing has used it yet
		plan, info.Rate, err = b.Plan(), b.Rate, nil
	}
	if err == nil {
		err = t.addPlan(plan, info.Rate)
	}
	if err != nil {
		return nil, err
	}
	return t, o.addFires(r, t)
}

// addPlan adds the stretches of a plan. own is the rate when the calendar names none.
func (t *Timetable) addPlan(plan schedule.Plan, own admission.Rate) error {
	table, err := plan.Timetable(t.Bucket, schedule.Rate{})
	if err != nil {
		return fmt.Errorf("bucket %q: its plan in Redis: %w", t.Bucket, err)
	}
	stretches, end := table.Between(t.From, t.Until, mostStretches)
	if !end.IsZero() && end.Before(t.Until) {
		t.Until = end.UTC()
	}
	for i, s := range stretches {
		one := OpenStretch{From: s.From.UTC(), Until: t.Until, Open: s.Open, UntilEmpty: s.UntilEmpty}
		if i == 0 {
			one.From = t.From
		}
		if i+1 < len(stretches) {
			one.Until = stretches[i+1].From.UTC()
		}
		if !one.From.Before(t.Until) {
			break
		}
		if one.Until.After(t.Until) {
			one.Until = t.Until
		}
		if s.Open {
			one.Rate = own.String()
			if s.Rate.Count > 0 {
				one.Rate = admission.Rate{Count: s.Rate.Count, Per: s.Rate.Per}.String()
			}
		}
		if !s.Finish.IsZero() {
			one.Finish = new(s.Finish.UTC())
		}
		t.Stretches = append(t.Stretches, one)
	}
	return nil
}

// addFires adds the fires of the schedules of the bucket.
func (o *ops) addFires(r *http.Request, t *Timetable) error {
	all, err := o.buckets.Schedules(r.Context())
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Bucket != t.Bucket || s.Orphaned || !s.Paused.IsZero() {
			continue
		}
		rule, err := s.Rule()
		if err != nil {
			continue // of a version that knows more
		}
		at := t.From.Add(-time.Second)
		for range mostStretches + 1 {
			if at = rule.Next(at); at.IsZero() || !at.Before(t.Until) {
				break
			}
			t.Fires = append(t.Fires, ScheduleFire{at.UTC(), s.Name})
		}
	}
	slices.SortStableFunc(t.Fires, func(a, b ScheduleFire) int { return a.At.Compare(b.At) })
	if len(t.Fires) > mostStretches {
		t.Until = t.Fires[mostStretches].At
		t.Fires = slices.DeleteFunc(t.Fires, func(f ScheduleFire) bool { return !f.At.Before(t.Until) })
		t.Stretches = slices.DeleteFunc(t.Stretches, func(s OpenStretch) bool { return !s.From.Before(t.Until) })
		if last := &t.Stretches[len(t.Stretches)-1]; last.Until.After(t.Until) {
			last.Until = t.Until
		}
	}
	return nil
}
