package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (o *ops) scheduleRoutes() []route {
	read, admin := roles(apikey.RoleRead), roles(apikey.RoleAdmin)
	return []route{
		{"GET", "/v1/schedules", o.listSchedules, read},
		{"GET", "/v1/schedules/{schedule}", o.showSchedule, read},
		{"PUT", "/v1/schedules/{schedule}", o.setSchedule, admin},
		{"DELETE", "/v1/schedules/{schedule}", o.removeSchedule, admin},
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
		all = slices.DeleteFunc(all, func(s shaper.ScheduleInfo) bool { return !key.MayUse(s.Bucket) })
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
	if key := keyOf(r); err == nil && key != nil && !key.MayUse(info.Bucket) {
		err = operator.ErrNoSchedule
	}
	if err != nil {
		return info, o.scheduleFault(r, name, err)
	}
	return info, nil
}

// isForeign reports whether one of the buckets in the way is none of those of the caller's key.
func isForeign(r *http.Request, conflict *operator.ScheduleConflictError) bool {
	key := keyOf(r)
	return key != nil && slices.ContainsFunc(conflict.Buckets, func(bucket string) bool { return !key.MayUse(bucket) })
}

func (o *ops) scheduleFault(r *http.Request, name string, err error) *fault {
	if errors.Is(err, operator.ErrNoSchedule) {
		return newFault(codeUnknownSchedule, "unknown schedule %q: GET /v1/schedules lists them", name)
	}
	if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
		return invalid(patchFaults(bad.Err))
	}
	if conflict, ok := errors.AsType[*operator.ScheduleConflictError](err); ok {
		if isForeign(r, conflict) {
			return newFault(codeScheduleConflict, "schedule %q: the name is taken in a bucket that the key is not for: choose another name", name)
		}
		return newFault(codeScheduleConflict, "%s", conflict)
	}
	f := o.store.of(r, err)
	if f.Code == codeStoreUnavailable && r.Method != http.MethodGet && elsewhere(err) == "" {
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

// maxScheduleBytes bounds a request: its payload may be base64.
const maxScheduleBytes = 256 << 10

// readSchedule reads a schedule: the keys of the configuration, and the body of a job as that of an enqueue.
func readSchedule(w http.ResponseWriter, r *http.Request) (bucket string, s shaper.Schedule, dryRun bool, f *fault) {
	f = readBodyBy(w, r, maxScheduleBytes, func(d *jobDecoder, body []byte) bool {
		isObject := d.object(body, func(d *jobDecoder, name string, value []byte) {
			switch name {
			case "bucket":
				bucket, _ = d.text(name, value)
			case "cron":
				s.Cron, _ = d.text(name, value)
			case "timezone":
				s.Timezone, _ = d.text(name, value)
			case "catch_up":
				text, _ := d.text(name, value)
				s.CatchUp = schedule.CatchUp(text)
			case "overlap":
				text, _ := d.text(name, value)
				s.Overlap = schedule.Overlap(text)
			case "dry_run":
				dryRun = d.truth(name, value)
			case "id", "cost", "delay", "not_before", "callback_url", "failure_url":
				d.fail(name, "is not for the job of a schedule")
			default:
				d.member(name, value)
			}
		})
		d.compose()
		for name, text := range map[string]string{"bucket": bucket, "cron": s.Cron} {
			if text == "" && len(d.errs) == 0 {
				d.fail(name, "is missing")
			}
		}
		j := d.job
		noReference(d, "url", j.URL)
		for name, values := range j.Headers {
			for _, value := range values {
				noReference(d, "headers."+name, value)
			}
		}
		s.Job = shaper.ScheduledJob{
			Flow: j.Flow, Group: j.Group, URL: j.URL, Method: j.Method, Headers: j.Headers, Payload: j.Payload, Priority: j.Priority,
			MaxAttempts: j.MaxAttempts, ExpiresIn: j.ExpiresIn,
		}
		return isObject
	})
	return bucket, s, dryRun, f
}

// noReference refuses what the same key of the configuration reads from elsewhere: here it would be sent as it is.
func noReference(d *jobDecoder, field, text string) {
	if strings.HasPrefix(text, "env:") || strings.HasPrefix(text, "file:") {
		d.fail(field, "begins with env: or file:, which is read in the configuration only: give the value itself")
	}
}

// setSchedule makes a schedule, or changes one that was made so: PUT /v1/schedules/{schedule}.
func (o *ops) setSchedule(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("schedule")
	bucket, s, dryRun, f := readSchedule(w, r)
	if key := keyOf(r); f == nil && key != nil && !key.MayUse(bucket) {
		f = newFault(codeForbidden, "key %q lacks bucket %q among its buckets", key.Name, bucket)
	}
	var settings shaper.Bucket
	if f == nil {
		var err error
		if settings, err = o.buckets.Bucket(bucket).Settings(); err != nil {
			f = o.unknownBucket(r, bucket)
		}
	}
	if f == nil {
		job := s.JobOf(bucket)
		f = bound(r, &settings, &job)
	}
	if f != nil {
		f.write(w, r)
		return
	}
	control := o.as(r).Schedule(name)
	if dryRun {
		if err := control.Check(r.Context(), bucket, s); err != nil {
			o.scheduleFault(r, name, err).write(w, r)
			return
		}
		s.Name = name
		info := shaper.ScheduleInfo{Schedule: s, Bucket: bucket, Source: shaper.ScheduleOfAPI}
		if rule, err := s.Rule(); err == nil { // as Check has seen
			info.Next = rule.NextN(time.Now(), nextFires)
		}
		writeJSON(w, http.StatusOK, opsview.ScheduleOf(info))
		return
	}
	changed, err := control.Set(context.WithoutCancel(r.Context()), bucket, s)
	var info shaper.ScheduleInfo
	if err == nil {
		info, err = control.Info(r.Context())
	}
	if err != nil {
		o.scheduleFault(r, name, err).write(w, r)
		return
	}
	view := opsview.ScheduleOf(info)
	view.Changed = &changed
	writeJSON(w, http.StatusOK, view)
}

const nextFires = 5 // that a dry run tells

// removeSchedule removes a schedule that was made through the API: DELETE /v1/schedules/{schedule}.
func (o *ops) removeSchedule(w http.ResponseWriter, r *http.Request) {
	name, dryRun := r.PathValue("schedule"), false
	if r.ContentLength != 0 {
		f := readObject(w, r, func(d *jobDecoder, name string, value []byte) {
			if name == "dry_run" {
				dryRun = d.truth(name, value)
			} else {
				d.fail(name, "is not taken here: want dry_run")
			}
		})
		if f != nil {
			f.write(w, r)
			return
		}
	}
	control := o.as(r).Schedule(name)
	info, err := control.Removable(r.Context())
	if key := keyOf(r); err == nil && key != nil && !key.MayUse(info.Bucket) {
		err = operator.ErrNoSchedule
	}
	if err == nil && !dryRun {
		info, err = control.Remove(context.WithoutCancel(r.Context()))
	}
	if err != nil {
		o.scheduleFault(r, name, err).write(w, r)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"schedule": opsview.ScheduleOf(info), "removed": !dryRun})
}
