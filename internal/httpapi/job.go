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
	fault  func(r *http.Request, bucket string, err error) *fault
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
		fault: func(r *http.Request, bucket string, err error) *fault {
			if errors.Is(err, shaper.ErrUnknownBucket) {
				return newFault(codeUnknownBucket, "bucket %q is not configured", bucket)
			}
			return p.store.of(r, err)
		},
	}
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
		fault: o.controlFault,
	}
}

func (j oneJob) routes() []route {
	return []route{
		{"GET", "/v1/buckets/{bucket}/jobs/{id}", j.show, roles(apikey.RoleEnqueue, apikey.RoleRead)},
		{"GET", "/v1/buckets/{bucket}/jobs/{id}/attempts", j.attempts, roles(apikey.RoleRead)},
		{"GET", "/v1/buckets/{bucket}/jobs/{id}/result", j.result, roles(apikey.RoleEnqueue, apikey.RoleRead)},
		{"DELETE", "/v1/buckets/{bucket}/jobs/{id}", j.drop, roles(apikey.RoleEnqueue)},
	}
}

type attemptsView struct {
	Attempts []opsview.Attempt `json:"attempts"`
}

// show answers a job, with its headers to readers. Its bucket may have left the
// configuration: GET /v1/buckets/{bucket}/jobs/{id}.
func (j oneJob) show(w http.ResponseWriter, r *http.Request) {
	j.with(w, r, func(bucket, id string) error {
		info, err := j.job(r.Context(), bucket, id)
		key := keyOf(r)
		reads := key == nil || key.Has([]apikey.Role{apikey.RoleRead})
		switch {
		case err != nil:
			return err
		case reads:
			writeJSON(w, http.StatusOK, opsview.JobForOperators(&info))
		case j.isKnownOf(key, &info):
			writeJSON(w, http.StatusOK, opsview.JobOf(&info))
		default:
			return shaper.ErrNotFound
		}
		return nil
	})
}

// attempts answers how the last attempts of a job ended: GET /v1/buckets/{bucket}/jobs/{id}/attempts.
func (j oneJob) attempts(w http.ResponseWriter, r *http.Request) {
	j.with(w, r, func(bucket, id string) error {
		info, err := j.job(r.Context(), bucket, id)
		if err == nil {
			writeJSON(w, http.StatusOK, attemptsView{opsview.Attempts(info.LastAttempts)})
		}
		return err
	})
}

// drop cancels a job that waits: DELETE /v1/buckets/{bucket}/jobs/{id}.
func (j oneJob) drop(w http.ResponseWriter, r *http.Request) {
	j.with(w, r, func(bucket, id string) error {
		if err := j.mayKnow(r, bucket, id); err != nil {
			return err
		}
		state, err := j.cancel(r, bucket, id)
		switch {
		case err != nil:
			return err
		case state == shaper.StateCancelled:
			writeJSON(w, http.StatusOK, &opsview.Job{ID: id, Bucket: bucket, State: state})
		default:
			problem := newFault(codeConflict, "job %q is %s: only a job that waits can be cancelled", id, state).problem(r)
			problem.State = state
			problem.write(w)
		}
		return nil
	})
}

// mayKnow returns [shaper.ErrNotFound] of a job that the key of a request may know nothing of.
func (j oneJob) mayKnow(r *http.Request, bucket, id string) error {
	key := keyOf(r)
	if key == nil || key.Has([]apikey.Role{apikey.RoleRead}) && !key.IsBound() {
		return nil
	}
	info, err := j.job(r.Context(), bucket, id)
	if err == nil && !j.isKnownOf(key, &info) {
		err = shaper.ErrNotFound
	}
	return err
}

// isKnownOf is isOf for a job by what is known of it. Of a job that has ended that is no flow. Then it is in one of the key's if
// its caller has no key for others.
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

// with calls do with the bucket and the id of the path, and answers the
// error that it returns.
func (j oneJob) with(w http.ResponseWriter, r *http.Request, do func(bucket, id string) error) {
	bucket, id := r.PathValue("bucket"), r.PathValue("id")
	err := shaper.ErrNotFound
	if shaper.ValidID(id) {
		err = do(bucket, id)
	}
	switch {
	case err == nil:
	case errors.Is(err, shaper.ErrNotFound):
		newFault(codeUnknownJob, "no such job: %q: bucket %q has none of this id, and remembers none", id, bucket).write(w, r)
	default:
		j.fault(r, bucket, err).write(w, r)
	}
}

// result answers how a job ended: GET /v1/buckets/{bucket}/jobs/{id}/result.
func (j oneJob) result(w http.ResponseWriter, r *http.Request) {
	j.with(w, r, func(bucket, id string) error {
		result, err := j.ended(r.Context(), bucket, id)
		if errors.Is(err, shaper.ErrNotEnded) || errors.Is(err, shaper.ErrNoResult) {
			if hidden := j.mayKnow(r, bucket, id); hidden != nil {
				return hidden
			}
		}
		switch key := keyOf(r); {
		case err == nil && key != nil && !key.Has([]apikey.Role{apikey.RoleRead}) && !j.isOf(key, result.Owner, bucket, result.Group, result.Flow):
			return shaper.ErrNotFound
		case err == nil:
			writeJSON(w, http.StatusOK, result.JSON())
		case errors.Is(err, shaper.ErrNotEnded):
			problem := newFault(codeNotEnded, "job %q is %s: ask again when it has ended, or enqueue with Prefer: wait", id, result.State).problem(r)
			problem.State = result.State
			problem.write(w)
			return nil
		case errors.Is(err, shaper.ErrNoResult):
			problem := newFault(codeNoResult, "%s", j.whyNoResult(r.Context(), bucket, id, result.State)).problem(r)
			problem.State = result.State
			problem.write(w)
			return nil
		}
		return err
	})
}

// whyNoResult says of a job that has ended why it has no result.
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
