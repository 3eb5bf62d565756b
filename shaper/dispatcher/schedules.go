package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	schedulesPoll   = 10 * time.Second // a look at the schedules of every bucket: see lookAtSchedules
	schedulesAtOnce = 128              // buckets in one pipeline
	schedulesRetry  = time.Second      // after Redis did not answer
	schedulesLook   = 16               // schedules of a bucket in one look
	blockedPause    = 2 * time.Second  // until a job that did not get in is tried again
	unreadablePause = time.Minute      // until a schedule that this program cannot read is looked at again
)

// scheduleWake names the buckets whose schedules are to be looked at now.
type scheduleWake struct {
	mu    sync.Mutex
	all   bool
	named map[string]bool
	token chan struct{}
}

func newScheduleWake() *scheduleWake {
	return &scheduleWake{named: make(map[string]bool), token: make(chan struct{}, 1)}
}

// add names a bucket; "" stands for all.
func (w *scheduleWake) add(bucket string) {
	w.mu.Lock()
	if bucket == "" {
		w.all = true
	} else {
		w.named[bucket] = true
	}
	w.mu.Unlock()
	select {
	case w.token <- struct{}{}:
	default:
	}
}

// take returns which buckets were named since it was called last.
func (w *scheduleWake) take() (all bool, named map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, named = w.all, w.named
	w.all, w.named = false, make(map[string]bool)
	return all, named
}

// scheduler looks after the schedules of one loop's bucket. It belongs to the loop of fireSchedules.
type scheduler struct {
	loop   *bucketLoop
	next   time.Time // when there is something to do
	some   bool      // the last look saw a schedule
	failed bool      // the last look did not work

	mu    sync.Mutex // of rules: fires of a look run beside each other
	rules map[string]readSchedule
}

// readSchedule is what was read from the text of a definition.
type readSchedule struct {
	text     string
	schedule shaper.Schedule
	rule     *schedule.Rule
}

// fireSchedules fires the schedules of all buckets until ctx ends. It sleeps until the first of them is due: then it costs one script
// for each bucket with a fire, and one for each fire. Every 10 s, and when it is told that something changed, it looks when that is.
// The clock is that of Redis: of its own it uses only how much time passes.
func (d *Dispatcher) fireSchedules(ctx context.Context) {
	var known []*scheduler
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.scheduleWake.token:
		}
		all, named := d.scheduleWake.take()
		known = schedulersOf(*d.loops.Load(), known)
		var due []*scheduler
		for _, s := range known {
			s.some = s.some || named[s.loop.Name]
			if all || named[s.loop.Name] || !time.Now().Before(s.next) {
				due = append(due, s)
			}
		}
		due = d.withSchedules(ctx, due)
		for some := range slices.Chunk(due, schedulesAtOnce) {
			d.lookAtSchedules(ctx, some)
		}
		soonest := time.Now().Add(schedulesPoll)
		for _, s := range known {
			if s.next.Before(soonest) {
				soonest = s.next
			}
		}
		timer.Reset(time.Until(soonest))
	}
}

// schedulersOf are those of loops. Those that are among the known ones stay.
func schedulersOf(loops []*bucketLoop, known []*scheduler) []*scheduler {
	byDrain := make(map[*bucketLoop]*scheduler, len(known))
	for _, s := range known {
		byDrain[s.loop] = s
	}
	schedulers := make([]*scheduler, len(loops))
	for i, loop := range loops {
		if schedulers[i] = byDrain[loop]; schedulers[i] == nil {
			schedulers[i] = &scheduler{loop: loop, rules: make(map[string]readSchedule)}
		}
	}
	return schedulers
}

// withSchedules returns those whose buckets have schedules. Buckets that had none are asked about together, as in [Dispatcher.look].
func (d *Dispatcher) withSchedules(ctx context.Context, all []*scheduler) []*scheduler {
	var some, none []*scheduler
	for _, s := range all {
		if s.some {
			some = append(some, s)
		} else {
			none = append(none, s)
		}
	}
	there := d.anyThere(ctx, len(none), func(n int) []string { return []string{none[n].loop.Keys.ScheduleDue()} })
	for n, s := range none {
		if there[n] {
			some = append(some, s)
		} else {
			s.next = time.Now().Add(schedulesPoll)
		}
	}
	return some
}

// lookAtSchedules fires what is due in some buckets, and notes when there is something to do next. A bucket that has more than one look
// shows is looked at again at once, after the others.
func (d *Dispatcher) lookAtSchedules(ctx context.Context, some []*scheduler) {
	if len(some) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	calls := make([]lua.Call, len(some))
	for i, s := range some {
		calls[i] = lua.Call{Script: lua.DueSchedules, Keys: s.loop.Keys.Of(lua.DueSchedules), Args: []any{schedulesLook}}
	}
	began := time.Now()
	results := lua.RunAll(bounded, d.store.Redis, calls)
	var fires sync.WaitGroup
	for i, s := range some {
		fires.Go(func() { s.see(ctx, began, results[i]) })
	}
	fires.Wait()
}

// see takes in the answer of due_schedules.lua to a look that began at an instant.
func (s *scheduler) see(ctx context.Context, began time.Time, result lua.Result) {
	err := result.Err
	var found []dueSchedule
	var now, next int64
	if err == nil {
		r := lua.NewReader(result.Reply)
		now, next = r.Int(), r.Int()
		for r.Left() > 0 && r.Err() == nil {
			found = append(found, dueSchedule{r.Text(), r.Text(), r.Text()})
		}
		err = r.Err()
	}
	if err == nil {
		err = s.fireAll(ctx, time.UnixMicro(now), found)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		if !s.failed {
			s.loop.log.WarnContext(ctx, "schedules of the bucket were not all looked at: the dispatcher tries again", "error", err)
		}
		s.failed, s.next = true, time.Now().Add(schedulesRetry)
		return
	case len(found) > 0: // what they do next is seen by another look
		s.some, s.next = true, time.Now()
	case next == 0:
		s.some, s.next = false, began.Add(schedulesPoll)
	default:
		s.some, s.next = true, began.Add(min(max(lua.Microseconds(next-now), 0), schedulesPoll))
	}
	s.failed = false
}

// dueSchedule is a schedule with which there is something to do.
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

// fire does what is to be done with a schedule at the time now of Redis.
func (s *scheduler) fire(ctx context.Context, now time.Time, one dueSchedule) error {
	state, err := store.ReadScheduleState(one.state)
	if err != nil {
		return err
	}
	fire := store.FireOf(one.name, &state, s.loop.dispatcher)
	read, err := s.read(one)
	if err != nil { // a newer program has written it
		s.loop.log.ErrorContext(ctx, "a schedule in Redis cannot be read: this dispatcher does not fire it", "schedule", one.name, "error", err)
		return s.advance(ctx, fire, "unreadable", unreadablePause)
	}
	if at := state.Requested(); !at.IsZero() {
		fire.Manual, fire.Due = true, state.Manual
		fire.SetTimes(at, time.Time{}, 0, time.Time{})
		return s.enqueue(ctx, fire, &read.schedule, at)
	}
	due, known := state.Reckoned()
	if !known {
		fire.SetTimes(time.Time{}, read.rule.Next(state.From(now)), 0, time.Time{})
		return s.advance(ctx, fire, "", 0)
	}
	plan := read.rule.Due(due, now, read.schedule.CatchesUp())
	fire.SetTimes(plan.Fire, plan.Next, plan.Missed, plan.First)
	if plan.Fire.IsZero() {
		return s.advance(ctx, fire, "", 0)
	}
	return s.enqueue(ctx, fire, &read.schedule, plan.Fire)
}

// read reads a definition, once.
func (s *scheduler) read(one dueSchedule) (readSchedule, error) {
	s.mu.Lock()
	known, ok := s.rules[one.name]
	s.mu.Unlock()
	if ok && known.text == one.definition {
		return known, nil
	}
	definition, err := store.ReadDefinition(one.definition)
	if err != nil {
		return readSchedule{}, err
	}
	rule, err := definition.Rule()
	if err != nil {
		return readSchedule{}, err
	}
	known = readSchedule{one.definition, definition, rule}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rules) >= shaper.MaxSchedules { // of schedules that went
		clear(s.rules)
	}
	s.rules[one.name] = known
	return known, nil
}

// advance moves a schedule on without a job; or, if it is blocked, to the next attempt.
func (s *scheduler) advance(ctx context.Context, fire *store.Fire, blocked string, pause time.Duration) error {
	text, err := fire.Text()
	if err != nil {
		return err
	}
	reply, err := s.loop.store.Run(ctx, lua.AdvanceSchedule, s.loop.Keys.Of(lua.AdvanceSchedule), text, blocked, pause.Microseconds())
	if err != nil {
		return err
	}
	if reply != int64(1) {
		return nil // another dispatcher was faster
	}
	if blocked != "" { // what is late with it is not given up yet
		s.loop.store.Metrics.CountSchedule(s.loop.Name, metrics.ScheduleBlocked, 1)
		return nil
	}
	s.noteMissed(ctx, fire)
	return nil
}

// noteMissed tells of fires that this dispatcher has given up.
func (s *scheduler) noteMissed(ctx context.Context, fire *store.Fire) {
	if fire.Missed == 0 {
		return
	}
	s.loop.log.WarnContext(ctx, "fires of a schedule are given up, as they are late", "schedule", fire.Name, "first", fire.First.UTC(), "count", fire.Missed)
	s.loop.store.Metrics.CountSchedule(s.loop.Name, string(shaper.ScheduleMissed), fire.Missed)
}

// Answers of enqueue.lua about a fire.
const (
	enqueueNotConfigured = 1
	enqueueOtherFlows    = 3
	enqueueOver          = 4
)

// enqueue lets the job of a fire in and moves the schedule on, in one script. Of any number of dispatchers that try one does.
func (s *scheduler) enqueue(ctx context.Context, fire *store.Fire, definition *shaper.Schedule, at time.Time) error {
	d := s.loop
	job := definition.JobOf(d.Name)
	job.ID = shaper.ScheduleJobID(definition.Name, at)
	settings := d.Settings.Load()
	var err1, err2 error
	job.Flow, err1 = settings.Flow.NameOf(&job)
	job.Group, err2 = settings.Group.NameOf(&job)
	if err := errors.Join(err1, err2); err != nil {
		return s.advance(ctx, fire, err.Error()[:min(len(err.Error()), 200)], blockedPause)
	}
	fire.Job, fire.Skip = job.ID, definition.Overlap == schedule.OverlapSkip && !fire.Manual
	r, err := s.letIn(ctx, fire, &job)
	if err != nil {
		return err
	}
	switch status := r.Int(); {
	case r.Err() != nil:
		return r.Err()
	case status == enqueueNotConfigured || status == enqueueOtherFlows:
		d.Configured.Store(false)
		d.nudge() // its next claim writes what has changed
		return fmt.Errorf("bucket %q: %w", d.Name, store.ErrNotConfigured)
	case status == enqueueOver:
		if skipped := r.Int() == 1; skipped {
			d.log.InfoContext(ctx, "a fire of a schedule is skipped: the job of the one before is unfinished", "schedule", fire.Name, "fire", at.UTC())
			d.store.Metrics.CountSchedule(d.Name, string(shaper.ScheduleSkipped), 1)
			s.noteMissed(ctx, fire)
		}
		return r.Err()
	}
	now, _, code := r.Int(), r.Int(), r.Int()
	if r.Err() != nil {
		return r.Err()
	}
	late := time.UnixMicro(now).Sub(at)
	if code <= lastAdmitted {
		d.log.InfoContext(ctx, "a schedule fired", "schedule", fire.Name, "fire", at.UTC(), "job", job.ID, "late", late)
		d.store.Metrics.CountSchedule(d.Name, string(shaper.ScheduleFired), 1)
		s.noteMissed(ctx, fire)
		d.store.Metrics.ObserveScheduleLateness(d.Name, late)
		return nil
	}
	reason := blockedBy(code)
	d.log.WarnContext(ctx, "the job of a schedule did not get in: the fire stays due", "schedule", fire.Name, "fire", at.UTC(), "reason", reason, "late", late)
	return s.advance(ctx, fire, string(reason), blockedPause)
}

// letIn runs enqueue.lua for the only job of a fire.
func (s *scheduler) letIn(ctx context.Context, fire *store.Fire, job *shaper.Job) (*lua.Reader, error) {
	d := s.loop
	sealed, err := codec.Seal(nil, job, false, "", d.Settings.Load().Callbacks.Has(job), d.Settings.Load().Batch.Has())
	if err != nil {
		return nil, err
	}
	codec.SetIndex(sealed, 1)
	text, err := fire.Text()
	if err != nil {
		return nil, err
	}
	path := codec.PathOf(d.Levels(), job.Group, job.Flow)
	keys := append(d.Keys.Of(lua.Enqueue, path), d.Keys.Schedules(), d.Keys.ScheduleDue())
	const noLimits, oneJob, unlike, oneFlow, firstFlow, cost = 0, 1, 0, 1, 1, 1
	reply, err := d.store.Run(ctx, lua.Enqueue, keys, store.WakeChannel, d.Name, "fire", noLimits, oneJob, unlike, d.Levels(), oneFlow, path,
		job.ID, &sealed, codec.PriorityCode(job.Priority), firstFlow, "", cost, "", text)
	if err != nil {
		return nil, err
	}
	return lua.NewReader(reply), nil
}

// lastAdmitted is the last of the codes of enqueue.lua that say that a job is in: queued, scheduled, a duplicate.
const lastAdmitted = 3

// blockedBy is why a job did not get in, by the codes of enqueue.lua. A schedule has no limits, no delay and takes any wait.
func blockedBy(code int64) shaper.Reason {
	switch code {
	case 4:
		return shaper.ReasonIDReused
	case 9:
		return shaper.ReasonShed
	case 10:
		return shaper.ReasonFlowFull
	case 11, 13, 21:
		return shaper.ReasonTooManyFlows
	case 12:
		return shaper.ReasonGroupFull
	case 14, 15:
		return shaper.ReasonDeadFull
	case 16:
		return shaper.ReasonFlowDisabled
	case 22, 23:
		return shaper.ReasonUnknownFlow
	}
	return shaper.ReasonBucketFull
}
