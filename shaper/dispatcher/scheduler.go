package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// scheduler fires the schedules of one bucket. Only the loop of fireSchedules uses it.
type scheduler struct {
	*bucketConn
	shared  *store.Store
	claims  token       // wakes the claim loop, which writes the settings
	changed atomic.Bool // a schedule has changed
	next    time.Time   // when to look next
	some    bool        // the last look found a schedule
	failed  bool        // the last look failed

	estimate func(bucket string, job *shaper.Job) shaper.Units // nil: jobs reserve the bucket's default
}

// fireDue fires the schedules that are due, and sets the time of the next look. If a bucket has more due schedules than one look returns, it is looked
// at again at once, after the others.
func (s *scheduler) fireDue(ctx context.Context) {
	began := time.Now()
	var found []dueSchedule
	var now, next int64
	err := s.run(ctx, s.shared, lua.DueSchedules, nil, func(r *lua.Reader) {
		for now, next = r.Int(), r.Int(); r.Left() > 0; {
			found = append(found, dueSchedule{r.Text(), r.Text(), r.Text()})
		}
	}, schedulesLook)
	if err == nil {
		err = s.fireAll(ctx, time.UnixMicro(now), found)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		if !s.failed {
			s.log.WarnContext(ctx, "schedules of the bucket were not all looked at: the dispatcher tries again", "error", err)
		}
		s.failed, s.next = true, time.Now().Add(schedulesRetry)
		return
	case len(found) > 0: // the next look finds their next times
		s.some, s.next = true, time.Now()
	case next == 0:
		s.some, s.next = false, began.Add(schedulesPoll)
	default:
		s.some, s.next = true, began.Add(min(max(lua.Microseconds(next-now), 0), schedulesPoll))
	}
	s.failed = false
}

// dueSchedule is a schedule that is due for a fire or an update.
type dueSchedule struct{ name, state, definition string }

func (s *scheduler) fireAll(ctx context.Context, now time.Time, found []dueSchedule) error {
	errs := make([]error, len(found))
	var fires sync.WaitGroup
	for i, one := range found {
		fires.Go(func() {
			if errs[i] = s.fire(ctx, now, one); errs[i] != nil {
				errs[i] = fmt.Errorf("schedule %q: %w", one.name, errs[i])
			}
		})
	}
	fires.Wait()
	return errors.Join(errs...)
}

// fire processes a due schedule. now is the time of Redis.
func (s *scheduler) fire(ctx context.Context, now time.Time, one dueSchedule) error {
	state, err := store.ReadScheduleState(one.state)
	if err != nil {
		return err
	}
	fire := store.FireOf(one.name, &state, s.dispatcher)
	definition, rule, err := readDefinition(one.definition)
	if err != nil { // a newer program has written it
		s.log.ErrorContext(ctx, "a schedule in Redis cannot be read: this dispatcher does not fire it", "schedule", one.name, "error", err)
		return s.advance(ctx, fire, "unreadable", unreadablePause)
	}
	if at := state.Requested(); !at.IsZero() {
		fire.Manual, fire.Due = true, state.Manual
		fire.SetTimes(at, time.Time{}, 0, time.Time{})
		return s.enqueue(ctx, fire, &definition, at)
	}
	due, known := state.NextDue()
	if !known {
		fire.SetTimes(time.Time{}, rule.Next(state.From(now)), 0, time.Time{})
		return s.advance(ctx, fire, "", 0)
	}
	plan := rule.Due(due, now, definition.CatchesUp())
	fire.SetTimes(plan.Fire, plan.Next, plan.Missed, plan.First)
	if plan.Fire.IsZero() {
		return s.advance(ctx, fire, "", 0)
	}
	return s.enqueue(ctx, fire, &definition, plan.Fire)
}

// readDefinition parses a schedule and its rule. That is cheap compared with the round trips of a fire.
func readDefinition(text string) (definition shaper.Schedule, rule *schedule.Rule, err error) {
	if definition, err = store.ReadDefinition(text); err == nil {
		rule, err = definition.Rule()
	}
	return definition, rule, err
}

// advance moves a schedule on without a job or, if it is blocked, to its next attempt.
func (s *scheduler) advance(ctx context.Context, fire *store.Fire, blocked string, pause time.Duration) error {
	text, err := fire.Text()
	if err != nil {
		return err
	}
	reply, err := s.store.Run(ctx, lua.AdvanceSchedule, s.Keys.Of(lua.AdvanceSchedule), text, blocked, pause.Microseconds())
	if err != nil {
		return err
	}
	if reply != int64(1) {
		return nil // another dispatcher was faster
	}
	if blocked != "" { // its late fires are not given up yet
		s.store.Metrics.CountSchedule(s.Name, metrics.ScheduleBlocked, 1)
		return nil
	}
	s.noteMissed(ctx, fire)
	return nil
}

// noteMissed logs and counts the fires that this dispatcher has given up.
func (s *scheduler) noteMissed(ctx context.Context, fire *store.Fire) {
	if fire.Missed == 0 {
		return
	}
	s.log.WarnContext(ctx, "fires of a schedule are given up, as they are late", "schedule", fire.Name, "first", fire.First.UTC(), "count", fire.Missed)
	s.store.Metrics.CountSchedule(s.Name, string(shaper.ScheduleMissed), fire.Missed)
}

// Status codes of enqueue.lua for a fire.
const (
	enqueueNotConfigured = 1
	enqueueOtherFlows    = 3
	enqueueOver          = 4
)

// enqueue enqueues the job of a fire and moves the schedule on, in one script. If several dispatchers try, only one succeeds.
func (s *scheduler) enqueue(ctx context.Context, fire *store.Fire, definition *shaper.Schedule, at time.Time) error {
	job := definition.JobOf(s.Name)
	job.ID = shaper.ScheduleJobID(definition.Name, at)
	settings := s.Settings.Load()
	var err1, err2 error
	job.Flow, err1 = settings.Flow.NameOf(&job)
	job.Group, err2 = settings.Group.NameOf(&job)
	if err := errors.Join(err1, err2); err != nil {
		return s.advance(ctx, fire, err.Error()[:min(len(err.Error()), 200)], blockedPause)
	}
	if s.estimate != nil && s.HasBudgets() {
		job.Units = s.estimate(s.Name, &job)
	}
	fire.Job, fire.Skip = job.ID, definition.Overlap == schedule.OverlapSkip && !fire.Manual
	r, err := s.sendJob(ctx, fire, &job)
	if err != nil {
		return err
	}
	switch status := r.Int(); {
	case r.Err() != nil:
		return r.Err()
	case status == enqueueNotConfigured || status == enqueueOtherFlows:
		s.Configured.Store(false)
		s.claims.put() // the next claim writes the settings
		return fmt.Errorf("bucket %q: %w", s.Name, store.ErrNotConfigured)
	case status == enqueueOver:
		if skipped := r.Int() == 1; skipped {
			s.log.InfoContext(ctx, "a fire of a schedule is skipped: the job of the previous fire is unfinished", "schedule", fire.Name, "fire", at.UTC())
			s.store.Metrics.CountSchedule(s.Name, string(shaper.ScheduleSkipped), 1)
			s.noteMissed(ctx, fire)
		}
		return r.Err()
	}
	now, _, code := r.Int(), r.Int(), r.Int()
	if r.Err() != nil {
		return r.Err()
	}
	late := time.UnixMicro(now).Sub(at)
	if code <= lua.Duplicate { // queued, scheduled, or a duplicate
		s.log.InfoContext(ctx, "a schedule fired", "schedule", fire.Name, "fire", at.UTC(), "job", job.ID, "late", late)
		s.store.Metrics.CountSchedule(s.Name, string(shaper.ScheduleFired), 1)
		s.noteMissed(ctx, fire)
		s.store.Metrics.ObserveScheduleLateness(s.Name, late)
		return nil
	}
	reason := cmp.Or(codec.Refusals[code], shaper.ReasonBucketFull)
	s.log.WarnContext(ctx, "the job of a schedule did not get in: the fire stays due", "schedule", fire.Name, "fire", at.UTC(), "reason", reason, "late", late)
	return s.advance(ctx, fire, string(reason), blockedPause)
}

// sendJob runs enqueue.lua for the job of a fire.
func (s *scheduler) sendJob(ctx context.Context, fire *store.Fire, job *shaper.Job) (*lua.Reader, error) {
	sealed, err := codec.Seal(nil, job, codec.Sealing{HasCallback: s.Settings.Load().Callbacks.Has(job), HasBatches: s.Settings.Load().Batch.Has()})
	if err != nil {
		return nil, err
	}
	codec.SetIndex(sealed, 1)
	text, err := fire.Text()
	if err != nil {
		return nil, err
	}
	path := codec.PathOf(s.Levels(), job.Group, job.Flow)
	keys := append(s.Keys.Of(lua.Enqueue, path), s.Keys.Schedules(), s.Keys.ScheduleDue())
	const noLimits, oneJob, unlike, oneFlow, firstFlow, cost = 0, 1, 0, 1, 1, 1
	reply, err := s.store.Run(ctx, lua.Enqueue, keys, store.WakeChannel, s.Keys.Name, "fire", noLimits, oneJob, unlike, s.Levels(), oneFlow, path,
		job.ID, &sealed, codec.PriorityCode(job.Priority), firstFlow, "", cost, "", text)
	if err != nil {
		return nil, err
	}
	return lua.NewReader(reply), nil
}
