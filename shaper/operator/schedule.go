package operator

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// ErrNoSchedule says that no bucket of the configuration has a schedule of this name.
var ErrNoSchedule = errors.New("shaper: no such schedule")

// Schedules returns the schedules of all configured buckets, in the order of the buckets and by name, with the next five times of each.
// One round trip for each bucket, and one for each 16 schedules.
func (o *Operator) Schedules(ctx context.Context) ([]shaper.ScheduleInfo, error) {
	var all []shaper.ScheduleInfo
	for _, b := range o.store.All() {
		some, err := o.store.Schedules(ctx, b, "")
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Schedule names a schedule of any bucket.
func (o *Operator) Schedule(name string) Schedule { return Schedule{o, name} }

// Schedule is a schedule to look at.
type Schedule struct {
	op   *Operator
	name string
}

// bucket is the bucket that has the schedule.
func (s Schedule) bucket(ctx context.Context) (*store.Bucket, error) {
	b, err := s.op.store.BucketOfSchedule(ctx, s.name)
	if err == nil && b == nil {
		err = fmt.Errorf("%w %q", ErrNoSchedule, s.name)
	}
	return b, err
}

// Info returns the schedule with its state and its next five times, or [ErrNoSchedule]. Two round trips.
func (s Schedule) Info(ctx context.Context) (shaper.ScheduleInfo, error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	found, err := s.op.store.Schedules(ctx, b, s.name)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w %q", ErrNoSchedule, s.name)
	}
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	return found[0], nil
}

// Runs returns what became of the last fires, newest first, at most 20; or [ErrNoSchedule]. Two round trips.
func (s Schedule) Runs(ctx context.Context) ([]shaper.ScheduleRun, error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return nil, err
	}
	return s.op.store.ScheduleRuns(ctx, b, s.name)
}

// ScheduleControl is a schedule to look at and to change.
type ScheduleControl struct {
	Schedule
	by string
}

// Schedule names a schedule of any bucket, to change it.
func (a Author) Schedule(name string) ScheduleControl {
	return ScheduleControl{a.op.Schedule(name), a.by}
}

// Pause stops the fires of the schedule, in all processes and across restarts, until it is resumed; but not those that an operator asks
// for. It reports whether it was not paused before. [ErrNoSchedule] if there is none. Two round trips.
func (s ScheduleControl) Pause(ctx context.Context, reason string) (changed bool, err error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return false, err
	}
	if !utf8.ValidString(reason) || len(reason) > MaxReason {
		return false, &InvalidChangeError{b.Name, fmt.Errorf("reason: want UTF-8 text of at most %d bytes", MaxReason)}
	}
	changed, _, err = s.control(ctx, b, metrics.ActionSchedulePause, "pause", reason)
	return changed, err
}

// Resume has the schedule fire again, from its next time on: fires of the pause are not made up for. It reports whether it was paused.
// [ErrNoSchedule] if there is none. Two round trips.
func (s ScheduleControl) Resume(ctx context.Context) (was bool, err error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return false, err
	}
	was, _, err = s.control(ctx, b, metrics.ActionScheduleResume, "resume", "")
	return was, err
}

// Fire asks for a fire now, also of a schedule that is paused, whatever Overlap says. A dispatcher enqueues its job, within about a
// second if there is room in the bucket. It returns the id that the job will have. While a fire waits a second request is the same one,
// and asked is false. [ErrNoSchedule] if there is none. Two round trips.
func (s ScheduleControl) Fire(ctx context.Context) (job string, asked bool, err error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return "", false, err
	}
	asked, at, err := s.control(ctx, b, metrics.ActionScheduleFire, "fire", "")
	if err != nil {
		return "", false, err
	}
	return shaper.ScheduleJobID(s.name, at), asked, nil
}

func (s ScheduleControl) control(ctx context.Context, b *store.Bucket, counted, action, reason string) (changed bool, requested time.Time, err error) {
	if changed, requested, err = s.op.store.ControlSchedule(ctx, b, s.name, action, s.by, reason); err == nil {
		control{s.op, s.by}.note(ctx, b.Name, counted, "schedule", s.name, "changed", changed)
	}
	return changed, requested, err
}
