package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (o *ops) scheduleRoutes() []route {
	read, admin := roles(RoleRead), roles(RoleAdmin)
	return []route{
		{"GET", "/v1/schedules", o.listSchedules, read},
		{"GET", "/v1/schedules/{schedule}", o.showSchedule, read},
		{"GET", "/v1/schedules/{schedule}/runs", o.showRuns, read},
		{"POST", "/v1/schedules/{schedule}/pause", o.pauseSchedule, admin},
		{"POST", "/v1/schedules/{schedule}/resume", o.resumeSchedule, admin},
		{"POST", "/v1/schedules/{schedule}/fire", o.fireSchedule, admin},
	}
}

// listSchedules answers the schedules of the buckets of the caller's key: GET /v1/schedules.
func (o *ops) listSchedules(w http.ResponseWriter, r *http.Request) {
	all, err := o.buckets.Schedules(r.Context())
	if err != nil {
		o.store.of(r, err).write(w, r)
		return
	}
	if key := keyOf(r); key != nil {
		all = slices.DeleteFunc(all, func(s shaper.ScheduleInfo) bool { return !key.mayUse(s.Bucket) })
	}
	views := make([]opsview.Schedule, len(all))
	for i, s := range all {
		views[i] = opsview.ScheduleOf(s)
	}
	writeJSON(w, http.StatusOK, map[string]any{"schedules": views})
}

// schedule looks at the schedule of a request. To a key that is not for its bucket there is none.
func (o *ops) schedule(r *http.Request) (shaper.ScheduleInfo, *fault) {
	name := r.PathValue("schedule")
	info, err := o.buckets.Schedule(name).Info(r.Context())
	if key := keyOf(r); err == nil && key != nil && !key.mayUse(info.Bucket) {
		err = operator.ErrNoSchedule
	}
	if err != nil {
		return info, o.scheduleFault(r, name, err)
	}
	return info, nil
}

func (o *ops) scheduleFault(r *http.Request, name string, err error) *fault {
	if errors.Is(err, operator.ErrNoSchedule) || errors.Is(err, shaper.ErrNotFound) {
		return newFault(codeUnknownSchedule, "unknown schedule %q: GET /v1/schedules lists them", name)
	}
	if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
		return invalid(patchFaults(bad.Err))
	}
	f := o.store.of(r, err)
	if f.Code == codeStoreUnavailable && r.Method != http.MethodGet {
		f.Detail = fmt.Sprintf("Redis is not reachable or too slow: schedule %q may be changed; send the same request again, which is safe", name)
	}
	return f
}

// showSchedule answers one schedule: GET /v1/schedules/{schedule}.
func (o *ops) showSchedule(w http.ResponseWriter, r *http.Request) {
	info, f := o.schedule(r)
	if f != nil {
		f.write(w, r)
		return
	}
	writeJSON(w, http.StatusOK, opsview.ScheduleOf(info))
}

// showRuns answers what became of the last fires: GET /v1/schedules/{schedule}/runs.
func (o *ops) showRuns(w http.ResponseWriter, r *http.Request) {
	info, f := o.schedule(r)
	if f != nil {
		f.write(w, r)
		return
	}
	runs, err := o.buckets.Schedule(info.Name).Runs(r.Context())
	if err != nil {
		o.scheduleFault(r, info.Name, err).write(w, r)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"runs": opsview.ScheduleRunsOf(runs)})
}

// changeSchedule makes the change of an operator, even if the client does not wait for it, and answers the schedule after it.
func (o *ops) changeSchedule(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, s operator.ScheduleControl) (changed bool, job string, err error)) {
	info, f := o.schedule(r)
	if f != nil {
		f.write(w, r)
		return
	}
	changed, job, err := do(context.WithoutCancel(r.Context()), o.as(r).Schedule(info.Name))
	if err == nil {
		info, err = o.buckets.Schedule(info.Name).Info(r.Context())
	}
	if err != nil {
		o.scheduleFault(r, info.Name, err).write(w, r)
		return
	}
	view := opsview.ScheduleOf(info)
	view.Changed, view.Job = &changed, job
	writeJSON(w, http.StatusOK, view)
}

// pauseSchedule stops the fires of a schedule: POST /v1/schedules/{schedule}/pause.
func (o *ops) pauseSchedule(w http.ResponseWriter, r *http.Request) {
	reason, f := readReason(w, r)
	if f != nil {
		f.write(w, r)
		return
	}
	o.changeSchedule(w, r, func(ctx context.Context, s operator.ScheduleControl) (bool, string, error) {
		changed, err := s.Pause(ctx, reason)
		return changed, "", err
	})
}

// resumeSchedule has a schedule fire again: POST /v1/schedules/{schedule}/resume.
func (o *ops) resumeSchedule(w http.ResponseWriter, r *http.Request) {
	o.changeSchedule(w, r, func(ctx context.Context, s operator.ScheduleControl) (bool, string, error) {
		was, err := s.Resume(ctx)
		return was, "", err
	})
}

// fireSchedule asks for a fire now: POST /v1/schedules/{schedule}/fire.
func (o *ops) fireSchedule(w http.ResponseWriter, r *http.Request) {
	o.changeSchedule(w, r, func(ctx context.Context, s operator.ScheduleControl) (bool, string, error) {
		job, asked, err := s.Fire(ctx)
		return asked, job, err
	})
}
