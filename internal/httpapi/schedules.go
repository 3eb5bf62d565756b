package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// listSchedules returns the schedules of the buckets of the caller's key.
func (o *ops) listSchedules(r *http.Request, _ *struct{}) (*ScheduleList, error) {
	all, err := o.buckets.Schedules(r.Context())
	if key := keyOf(r); key != nil {
		all = slices.DeleteFunc(all, func(s shaper.ScheduleInfo) bool { return !key.MayUse(s.Bucket) })
	}
	list := &ScheduleList{make([]opsview.Schedule, len(all))}
	for i, s := range all {
		list.Schedules[i] = opsview.ScheduleOf(s)
	}
	return list, err
}

// schedule reads a schedule. For a key that is not for its bucket, the schedule does not exist.
func (o *ops) schedule(r *http.Request, name string) (shaper.ScheduleInfo, error) {
	info, err := o.buckets.Schedule(name).Info(r.Context())
	if err == nil && isForeign(r, info.Bucket) {
		err = operator.ErrNoSchedule
	}
	return info, err
}

func (o *ops) showSchedule(r *http.Request, in *ScheduleName) (*opsview.Schedule, error) {
	info, err := o.schedule(r, in.Schedule)
	view := opsview.ScheduleOf(info)
	return &view, err
}

// showScheduleRuns returns the outcomes of the last fires.
func (o *ops) showScheduleRuns(r *http.Request, in *ScheduleName) (*ScheduleRuns, error) {
	info, err := o.schedule(r, in.Schedule)
	if err != nil {
		return nil, err
	}
	runs, err := o.buckets.Schedule(info.Name).Runs(r.Context())
	return &ScheduleRuns{opsview.ScheduleRunsOf(runs)}, err
}

// scheduleChange is the result of a change of a schedule.
type scheduleChange struct {
	changed bool
	job     string // of a fire
}

func (o *ops) changeSchedule(r *http.Request, name string, do func(ctx context.Context, s operator.Schedule) (scheduleChange, error)) (*opsview.Schedule, error) {
	if _, err := o.schedule(r, name); err != nil {
		return nil, err
	}
	return change(r, func(ctx context.Context) (scheduleChange, error) { return do(ctx, o.as(r).Schedule(name)) },
		func(r *http.Request, done scheduleChange) (*opsview.Schedule, error) {
			return o.scheduleAfter(r, name, done)
		})
}

// scheduleAfter returns a schedule with the result of its change.
func (o *ops) scheduleAfter(r *http.Request, name string, done scheduleChange) (*opsview.Schedule, error) {
	info, err := o.buckets.Schedule(name).Info(r.Context())
	view := opsview.ScheduleOf(info)
	view.Changed, view.Job = &done.changed, done.job
	return &view, err
}

// pauseSchedule stops the fires of a schedule.
func (o *ops) pauseSchedule(r *http.Request, in *SchedulePause) (*opsview.Schedule, error) {
	return o.changeSchedule(r, in.Schedule, func(ctx context.Context, s operator.Schedule) (done scheduleChange, err error) {
		done.changed, err = s.Pause(ctx, in.Reason)
		return done, err
	})
}

// resumeSchedule ends the pause of a schedule.
func (o *ops) resumeSchedule(r *http.Request, in *ScheduleName) (*opsview.Schedule, error) {
	return o.changeSchedule(r, in.Schedule, func(ctx context.Context, s operator.Schedule) (done scheduleChange, err error) {
		done.changed, err = s.Resume(ctx)
		return done, err
	})
}

// fireSchedule requests a fire now.
func (o *ops) fireSchedule(r *http.Request, in *ScheduleName) (*opsview.Schedule, error) {
	return o.changeSchedule(r, in.Schedule, func(ctx context.Context, s operator.Schedule) (done scheduleChange, err error) {
		done.job, done.changed, err = s.Fire(ctx)
		return done, err
	})
}

// maxScheduleBytes bounds a request: its payload may be base64.
const maxScheduleBytes = 256 << 10

// readSchedule reads a schedule: the keys of the configuration, and the body of a job as in an enqueue.
func readSchedule(body []byte) (bucket string, s shaper.Schedule, dryRun bool, f *fault) {
	f = readBytesBy(body, func(d *jobDecoder, body []byte) bool {
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

// noReference refuses a reference, which the same key of the configuration would resolve: here it would be sent as it is.
func noReference(d *jobDecoder, field, text string) {
	if setting.IsReference(text) {
		d.fail(field, "begins with env:, file: or cred:, which is read in the configuration only: give the value itself")
	}
}

// setSchedule creates a schedule, or changes one that the API created.
func (o *ops) setSchedule(r *http.Request, in *ScheduleDefinition) (*opsview.Schedule, error) {
	name := in.Schedule
	bucket, s, dryRun, f := readSchedule(in.Definition)
	if f != nil {
		return nil, f
	}
	if isForeign(r, bucket) {
		return nil, newFault(codeForbidden, "key %q lacks bucket %q among its buckets", keyName(r), bucket)
	}
	settings, err := o.buckets.Bucket(bucket).Settings()
	if err != nil {
		return nil, o.unknownBucket(r, bucket)
	}
	job := s.JobOf(bucket)
	if f := bound(r, &settings, &job); f != nil {
		return nil, f
	}
	control := o.as(r).Schedule(name)
	if !dryRun {
		var before scheduleRule
		if info, err := o.buckets.Schedule(name).Info(r.Context()); err == nil {
			before = ruleOf(info)
		}
		return change(r, func(ctx context.Context) (bool, error) { return control.Set(ctx, bucket, s) },
			func(r *http.Request, changed bool) (*opsview.Schedule, error) {
				s.Name = name
				changedFrom(r, before, ruleOf(shaper.ScheduleInfo{Schedule: s, Bucket: bucket}))
				return o.scheduleAfter(r, name, scheduleChange{changed: changed})
			})
	}
	if err := control.Check(r.Context(), bucket, s); err != nil {
		return nil, err
	}
	s.Name = name
	info := shaper.ScheduleInfo{Schedule: s, Bucket: bucket, Source: shaper.ScheduleOfAPI}
	if rule, err := s.Rule(); err == nil { // as Check has seen
		info.Next = rule.NextN(time.Now(), nextFires)
	}
	view := opsview.ScheduleOf(info)
	return &view, nil
}

// scheduleRule is the part of a schedule that the audit shows, without its job.
type scheduleRule struct {
	Bucket   string           `json:"bucket"`
	Cron     string           `json:"cron"`
	Timezone string           `json:"timezone"`
	CatchUp  schedule.CatchUp `json:"catch_up"`
	Overlap  schedule.Overlap `json:"overlap"`
}

func ruleOf(info shaper.ScheduleInfo) scheduleRule {
	return scheduleRule{info.Bucket, info.Cron, info.Timezone, info.CatchUp, info.Overlap}
}

const nextFires = 5 // in the response to a dry run

// removeSchedule removes a schedule that was made through the API.
func (o *ops) removeSchedule(r *http.Request, in *ScheduleRemoval) (*RemovedSchedule, error) {
	control := o.as(r).Schedule(in.Schedule)
	info, err := control.Removable(r.Context())
	if err == nil && isForeign(r, info.Bucket) {
		err = operator.ErrNoSchedule
	}
	if err == nil && !in.DryRun {
		info, err = control.Remove(context.WithoutCancel(r.Context()))
	}
	return &RemovedSchedule{opsview.ScheduleOf(info), !in.DryRun}, err
}
