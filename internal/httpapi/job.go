package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// oneJob serves the routes of one job. Both servers have them.
type oneJob struct {
	bucket func(name string) (shaper.Bucket, error)
	job    func(ctx context.Context, bucket, id string) (shaper.JobInfo, error)
	ended  func(ctx context.Context, bucket, id string) (shaper.JobResult, error)
	cancel func(r *http.Request, bucket, id string) (shaper.State, error)
	fault  func(r *http.Request, err error) *fault
}

func (p *producer) oneJob() oneJob {
	return oneJob{
		bucket: p.jobs.Bucket, job: p.jobs.Job, ended: p.jobs.Result,
		cancel: func(r *http.Request, bucket, id string) (shaper.State, error) {
			state, err := p.jobs.Cancel(context.WithoutCancel(r.Context()), bucket, id)
			if err == nil && state == shaper.StateCancelled {
				p.log.InfoContext(r.Context(), "job cancelled", "bucket", bucket, "job", id, "key", keyName(r), "request_id", requestID(r))
			}
			return state, err
		},
		fault: p.fault,
	}
}

// fault returns the fault of an error of an operation.
func (p *producer) fault(r *http.Request, err error) *fault {
	if errors.Is(err, shaper.ErrUnknownBucket) {
		return newFault(codeUnknownBucket, "bucket %q is not configured", r.PathValue("bucket"))
	}
	return p.store.faultOf(r, err)
}

func (o *ops) oneJob() oneJob {
	return oneJob{
		bucket: func(name string) (shaper.Bucket, error) { return o.buckets.Bucket(name).Settings() },
		job: func(ctx context.Context, bucket, id string) (shaper.JobInfo, error) {
			return o.buckets.Bucket(bucket).Job(id).Info(ctx)
		},
		ended: func(ctx context.Context, bucket, id string) (shaper.JobResult, error) {
			return o.buckets.Bucket(bucket).Job(id).Result(ctx)
		},
		cancel: func(r *http.Request, bucket, id string) (shaper.State, error) {
			return o.as(r).Bucket(bucket).Job(id).Cancel(context.WithoutCancel(r.Context()))
		},
		fault: o.fault,
	}
}

func (j oneJob) routes() []route {
	return []route{
		bind(j.faultOf, ShowJob, j.show),
		bind(j.faultOf, CancelJob, j.drop),
		bind(j.faultOf, ListAttempts, j.attempts),
		bind(j.faultOf, ShowResult, j.result),
	}
}

// faultOf returns the fault of an error of an operation on a job.
func (j oneJob) faultOf(r *http.Request, err error) *fault {
	if errors.Is(err, shaper.ErrNotFound) {
		return newFault(codeUnknownJob, "no such job: %q: bucket %q has none of this id, and remembers none", r.PathValue("id"), r.PathValue("bucket"))
	}
	return j.fault(r, err)
}

// readJob reads a job. Its bucket may have been removed from the configuration.
func (j oneJob) readJob(ctx context.Context, in *JobName) (shaper.JobInfo, error) {
	if !shaper.ValidID(in.ID) {
		return shaper.JobInfo{}, shaper.ErrNotFound
	}
	return j.job(ctx, in.Bucket, in.ID)
}

// show returns a job, with its headers for keys with the role read.
func (j oneJob) show(r *http.Request, in *JobName) (*opsview.Job, error) {
	info, err := j.readJob(r.Context(), in)
	key := keyOf(r)
	if err == nil && info.State == shaper.StateDone {
		j.addEnd(r, &info)
	}
	switch {
	case err != nil:
		return nil, err
	case key == nil || key.Has([]apikey.Role{apikey.RoleRead}):
		return opsview.JobForOperators(&info), nil
	case j.isKnownOf(key, &info):
		return opsview.JobOf(&info), nil
	}
	return nil, shaper.ErrNotFound
}

// addEnd adds how a job ended, if its bucket keeps that and the key may see it.
func (j oneJob) addEnd(r *http.Request, info *shaper.JobInfo) {
	if b, err := j.bucket(info.Bucket); err == nil && b.Results.Retention == 0 {
		return
	}
	ended, err := j.ended(r.Context(), info.Bucket, info.ID)
	if key := keyOf(r); err == nil && (key == nil || j.isOf(key, ended.Owner, info.Bucket, ended.Group, ended.Flow)) {
		info.Ended, info.LastAttempts = &ended, ended.Deliveries()
	}
}

// attempts returns the outcomes of a job's last attempts.
func (j oneJob) attempts(r *http.Request, in *JobName) (*AttemptList, error) {
	info, err := j.readJob(r.Context(), in)
	if err == nil && info.State == shaper.StateDone {
		j.addEnd(r, &info)
	}
	return &AttemptList{opsview.Attempts(info.LastAttempts)}, err
}

// drop cancels a job that waits.
func (j oneJob) drop(r *http.Request, in *JobName) (*opsview.Job, error) {
	if err := j.mayKnow(r, in); err != nil {
		return nil, err
	}
	if isRecorded(r) {
		if info, err := j.readJob(r.Context(), in); err == nil && info.State == shaper.StateCancelled {
			foundNothing(r)
			return &opsview.Job{ID: in.ID, Bucket: in.Bucket, State: info.State}, nil
		}
	}
	state, err := j.cancel(r, in.Bucket, in.ID)
	if err == nil && state != shaper.StateCancelled {
		problem := newFault(codeConflict, "job %q is %s: only a job that waits can be cancelled", in.ID, state).problem(r)
		problem.State, err = state, problem
	}
	return &opsview.Job{ID: in.ID, Bucket: in.Bucket, State: state}, err
}

// mayKnow returns [shaper.ErrNotFound] for a job that the key of a request may not see.
func (j oneJob) mayKnow(r *http.Request, in *JobName) error {
	if !shaper.ValidID(in.ID) {
		return shaper.ErrNotFound
	}
	key := keyOf(r)
	if key == nil || key.Has([]apikey.Role{apikey.RoleRead}) && !key.IsBound() {
		return nil
	}
	info, err := j.job(r.Context(), in.Bucket, in.ID)
	if err == nil && !j.isKnownOf(key, &info) {
		err = shaper.ErrNotFound
	}
	return err
}

// isKnownOf is isOf for a job by its stored state. A job that has ended has no flow there. It counts as in the key's flows if it is of the key's caller,
// and all keys of that caller are for the same flows and groups.
func (j oneJob) isKnownOf(key *apikey.Key, info *shaper.JobInfo) bool {
	if !info.Enqueued.IsZero() || !key.IsBound() {
		return j.isOf(key, info.Owner, info.Bucket, info.Group, info.Flow)
	}
	return key.Has([]apikey.Role{apikey.RoleRead}) || key.SharesBounds() && info.Owner.Mark != "" && info.Owner.Is(key.Owner())
}

// isOf reports whether a job is of the key's caller, or one that the key may read, and in a flow and a group of the key.
func (j oneJob) isOf(key *apikey.Key, owner shaper.Owner, bucketName, group, flow string) bool {
	if !key.Has([]apikey.Role{apikey.RoleRead}) && !owner.Is(key.Owner()) {
		return false
	}
	if !key.IsBound() {
		return true
	}
	bucket, err := j.bucket(bucketName)
	return err == nil && key.MayEnqueue(&bucket, group, flow)
}

// result returns how a job ended.
func (j oneJob) result(r *http.Request, in *JobName) (*opsview.Result, error) {
	if !shaper.ValidID(in.ID) {
		return nil, shaper.ErrNotFound
	}
	result, err := j.ended(r.Context(), in.Bucket, in.ID)
	if errors.Is(err, shaper.ErrNotEnded) || errors.Is(err, shaper.ErrNoResult) {
		if hidden := j.mayKnow(r, in); hidden != nil {
			return nil, hidden
		}
	}
	var f *fault
	switch key := keyOf(r); {
	case err == nil && key != nil && !key.Has([]apikey.Role{apikey.RoleRead}) && !j.isOf(key, result.Owner, in.Bucket, result.Group, result.Flow):
		return nil, shaper.ErrNotFound
	case err == nil:
		return result.JSON(), nil
	case errors.Is(err, shaper.ErrNotEnded):
		f = newFault(codeNotEnded, "job %q is %s: ask again when it has ended, or enqueue with Prefer: wait", in.ID, result.State)
	case errors.Is(err, shaper.ErrNoResult):
		f = newFault(codeNoResult, "%s", j.whyNoResult(r.Context(), in.Bucket, in.ID, result.State))
	default:
		return nil, err
	}
	problem := f.problem(r)
	problem.State = result.State
	return nil, problem
}

// whyNoResult returns why a job that has ended has no result.
func (j oneJob) whyNoResult(ctx context.Context, bucket, id string, state shaper.State) string {
	kept := "the bucket keeps results for result_retention, and no more than results_max and results_bytes"
	switch state {
	case shaper.StateCancelled:
		return fmt.Sprintf("job %q is cancelled: it has no result", id)
	case shaper.StateDead:
		info, err := j.job(ctx, bucket, id)
		switch {
		case err != nil || info.State != shaper.StateDead:
		case info.Attempts+info.Lost == 0:
			return fmt.Sprintf("job %q is dead (%s) and was never sent: there was no answer", id, info.Last.Cause)
		default:
			return fmt.Sprintf("job %q is dead (%s), and no result is kept: %s. The job itself has its last response", id, info.Last.Cause, kept)
		}
	}
	return fmt.Sprintf("job %q is %s, and nothing is kept of an answer: %s", id, state, kept)
}
