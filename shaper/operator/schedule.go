package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// ErrNoSchedule says that no bucket has a schedule of this name.
var ErrNoSchedule = errors.New("shaper: no such schedule")

// ScheduleConflictError says why a schedule cannot be changed as requested, and what to do instead. Nothing was changed.
type ScheduleConflictError struct {
	Name    string
	Buckets []string // that have a schedule of this name
	Reason  string
}

func (e *ScheduleConflictError) Error() string {
	return fmt.Sprintf("schedule %q: %s", e.Name, e.Reason)
}

// Schedules returns the schedules of all buckets that Redis knows, in the order of the buckets and by name, with the next five times of each.
// Schedules of a bucket that was removed from the configuration come last, and are Orphaned: they do not fire. Two round trips, and one for each
// eight schedules of a bucket.
func (o *Operator) Schedules(ctx context.Context) ([]shaper.ScheduleInfo, error) {
	return o.store.AllSchedules(ctx)
}

// Schedule returns the handle of a schedule of any bucket.
func (o *Operator) Schedule(name string) Schedule { return Schedule{o, name} }

// Schedule is the handle of a schedule. Its methods return [ErrNoSchedule] if there is none of this name, and a [*ScheduleConflictError] if two buckets
// have one. Changes need an author: see [Operator.As].
type Schedule struct {
	op   *Operator
	name string
}

// home returns the bucket that has the schedule.
func (s Schedule) home(ctx context.Context) (store.ScheduleHome, error) {
	found, err := s.op.store.FindSchedule(ctx, s.name)
	switch {
	case err != nil:
		return store.ScheduleHome{}, err
	case len(found) == 0:
		return store.ScheduleHome{}, fmt.Errorf("%w %q", ErrNoSchedule, s.name)
	case len(found) > 1:
		return store.ScheduleHome{}, s.conflict(found, "is in %s: remove the one that was made through the API, or give the one of the configuration another name", places(found))
	}
	return found[0], nil
}

func (s Schedule) conflict(found []store.ScheduleHome, format string, args ...any) error {
	e := &ScheduleConflictError{Name: s.name, Reason: fmt.Sprintf(format, args...)}
	for _, home := range found {
		e.Buckets = append(e.Buckets, home.Bucket)
	}
	return e
}

// places describes where schedules are.
func places(found []store.ScheduleHome) string {
	texts := make([]string, len(found))
	for i, home := range found {
		texts[i] = fmt.Sprintf("bucket %q (%s)", home.Bucket, home.Source)
	}
	return strings.Join(texts, " and in ")
}

// Info returns the schedule with its state and its next five times. Three round trips.
func (s Schedule) Info(ctx context.Context) (shaper.ScheduleInfo, error) {
	home, err := s.home(ctx)
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	found, err := s.op.store.Schedules(ctx, home, s.name)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w %q", ErrNoSchedule, s.name)
	}
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	return found[0], nil
}

// Runs returns what became of the last fires and of their jobs, newest first, at most 20. Three round trips.
func (s Schedule) Runs(ctx context.Context) ([]shaper.ScheduleRun, error) {
	home, err := s.home(ctx)
	if err != nil {
		return nil, err
	}
	return s.op.store.ScheduleRuns(ctx, home, s.name)
}

// Set gives a configured bucket a schedule with these settings and the name of s. It is effective in all processes and across restarts, until
// [Schedule.Remove], whatever configurations say. Set creates the schedule, or changes one that Set created; then a pause stays, and a new
// Cron or Timezone counts from now on. It reports whether something changed. Author and time are stored.
//
// The settings are checked like the settings of a configuration: what does not fit is an [*InvalidChangeError], each line of which begins with the
// key.
// [shaper.ErrUnknownBucket] if the bucket is not configured here. A [*ScheduleConflictError] if the configuration has a schedule of this name,
// another bucket has one, or the bucket has [shaper.MaxSchedules]. Three round trips.
func (s Schedule) Set(ctx context.Context, bucket string, settings shaper.Schedule) (changed bool, err error) {
	if err := s.Check(ctx, bucket, settings); err != nil {
		return false, err
	}
	settings.Name = s.name
	text, err := store.DefinitionText(&settings)
	if err != nil {
		return false, err
	}
	b, err := s.op.store.Bucket(bucket)
	if err != nil {
		return false, err
	}
	change, _, err := s.control(ctx, store.HomeOf(b), metrics.ActionScheduleSet, "set", text)
	return change == store.ScheduleChanged, err
}

// Check returns the error that [Schedule.Set] would, and changes nothing. Two round trips.
func (s Schedule) Check(ctx context.Context, bucket string, settings shaper.Schedule) error {
	b, err := s.op.store.Bucket(bucket)
	if err != nil {
		return err
	}
	settings.Name = s.name
	err = settings.Validate(b.Settings.Load())
	if job := settings.JobOf(bucket); err == nil && s.op.checkJob != nil {
		err = s.op.checkJob(bucket, &job)
	}
	if err != nil {
		return &InvalidChangeError{bucket, err}
	}
	found, err := s.op.store.FindSchedule(ctx, s.name)
	if err != nil {
		return err
	}
	for _, home := range found {
		switch {
		case home.Source == shaper.ScheduleOfConfig && !home.Orphaned:
			return s.isConfigured(home)
		case home.Bucket != bucket:
			return s.conflict(found, "is in %s already: remove it first, or choose another name", places(found))
		}
	}
	return nil
}

func (s Schedule) isConfigured(home store.ScheduleHome) error {
	return s.conflict([]store.ScheduleHome{home}, "is in the configuration, for bucket %q: change [[schedules]] there and reload", home.Bucket)
}

// Remove removes the schedule that [Schedule.Set] made, with its history, and returns what it was. Its jobs stay. If the configuration has one
// of this name for the same bucket, that replaces it. A [*ScheduleConflictError] if only the configuration has the schedule. Four round trips.
func (s Schedule) Remove(ctx context.Context) (shaper.ScheduleInfo, error) {
	home, info, err := s.removable(ctx)
	if err == nil {
		_, _, err = s.control(ctx, home, metrics.ActionScheduleRemove, "remove", "")
	}
	return info, err
}

// Removable returns what [Schedule.Remove] would return, and changes nothing. Three round trips.
func (s Schedule) Removable(ctx context.Context) (shaper.ScheduleInfo, error) {
	_, info, err := s.removable(ctx)
	return info, err
}

func (s Schedule) removable(ctx context.Context) (home store.ScheduleHome, info shaper.ScheduleInfo, err error) {
	found, err := s.op.store.FindSchedule(ctx, s.name)
	if err != nil {
		return home, info, err
	}
	made := slices.IndexFunc(found, func(home store.ScheduleHome) bool { return home.Source == shaper.ScheduleOfAPI })
	if made < 0 && len(found) > 0 {
		return home, info, s.isConfigured(found[0])
	}
	var infos []shaper.ScheduleInfo
	if made >= 0 {
		home = found[made]
		infos, err = s.op.store.Schedules(ctx, home, s.name)
	}
	if err == nil && len(infos) == 0 {
		err = fmt.Errorf("%w %q", ErrNoSchedule, s.name)
	}
	if err != nil {
		return home, info, err
	}
	return home, infos[0], nil
}

// Pause stops the fires of the schedule, in all processes and across restarts, until it is resumed. An operator can still fire it. It reports whether
// it was running. Three round trips.
func (s Schedule) Pause(ctx context.Context, reason string) (changed bool, err error) {
	home, err := s.home(ctx)
	if err != nil {
		return false, err
	}
	if err := checkReason(home.Bucket, reason); err != nil {
		return false, err
	}
	change, _, err := s.control(ctx, home, metrics.ActionSchedulePause, "pause", reason)
	return change == store.ScheduleChanged, err
}

// Resume makes the schedule fire again, from its next time on: fires during the pause are not made up for. It reports whether it was paused. Three
// round trips.
func (s Schedule) Resume(ctx context.Context) (was bool, err error) {
	home, err := s.home(ctx)
	if err != nil {
		return false, err
	}
	change, _, err := s.control(ctx, home, metrics.ActionScheduleResume, "resume", "")
	return change == store.ScheduleChanged, err
}

// Fire requests a fire now, also if the schedule is paused, whatever Overlap says. A dispatcher enqueues its job within about a second, if there is
// room in the bucket. Fire returns the id of that job. While a fire waits, a second request is the same one, and asked is false. A
// [*ScheduleConflictError] if the schedule is orphaned: no dispatcher would fire it. Three round trips.
func (s Schedule) Fire(ctx context.Context) (job string, asked bool, err error) {
	home, err := s.home(ctx)
	if err == nil && home.Orphaned {
		err = s.conflict([]store.ScheduleHome{home}, "does not fire: bucket %q is not in the configuration", home.Bucket)
	}
	if err != nil {
		return "", false, err
	}
	change, at, err := s.control(ctx, home, metrics.ActionScheduleFire, "fire", "")
	if err != nil {
		return "", false, err
	}
	return shaper.ScheduleJobID(s.name, at), change == store.ScheduleChanged, nil
}

// control makes a change. It returns an error if Redis finds only then that the schedule is gone, or is another one.
func (s Schedule) control(ctx context.Context, home store.ScheduleHome, counted, action, text string) (store.ScheduleChange, time.Time, error) {
	if err := s.op.hasAuthor(); err != nil {
		return 0, time.Time{}, err
	}
	change, requested, err := s.op.store.ControlSchedule(ctx, home, s.name, action, s.op.by, text)
	switch {
	case err != nil:
		return 0, time.Time{}, err
	case change == store.ScheduleUnknown:
		return 0, time.Time{}, fmt.Errorf("%w %q", ErrNoSchedule, s.name)
	case change == store.ScheduleConfigured:
		return 0, time.Time{}, s.isConfigured(home)
	case change == store.ScheduleTooMany:
		return 0, time.Time{}, s.conflict(nil, "bucket %q has %d schedules already: remove some, or spread them over several buckets", home.Bucket, shaper.MaxSchedules)
	}
	s.op.note(ctx, home.Bucket, counted, "schedule", s.name, "changed", change == store.ScheduleChanged)
	return change, requested, nil
}
