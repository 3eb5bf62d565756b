package httpapi

import (
	"context"
	"errors"
	"net/http"

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
		{"GET", "/v1/buckets/{bucket}/jobs/{id}", j.show, roles(RoleEnqueue, RoleRead)},
		{"GET", "/v1/buckets/{bucket}/jobs/{id}/attempts", j.attempts, roles(RoleRead)},
		{"GET", "/v1/buckets/{bucket}/jobs/{id}/result", j.result, roles(RoleEnqueue, RoleRead)},
		{"DELETE", "/v1/buckets/{bucket}/jobs/{id}", j.drop, roles(RoleEnqueue)},
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
		reads := key == nil || key.has([]Role{RoleRead})
		switch {
		case err != nil:
			return err
		case reads:
			writeJSON(w, http.StatusOK, opsview.JobForOperators(&info))
		case j.isOf(key, &info):
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
		if key := keyOf(r); key != nil && key.isBound() {
			info, err := j.job(r.Context(), bucket, id)
			if err != nil {
				return err
			}
			if !j.isOf(key, &info) {
				return shaper.ErrNotFound
			}
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

// isOf reports whether a job is in a flow and a group of the key. A settled job is: only its
// state is known.
func (j oneJob) isOf(key *Key, info *shaper.JobInfo) bool {
	if !key.isBound() || info.Enqueued.IsZero() {
		return true
	}
	bucket, err := j.bucket(info.Bucket)
	return err == nil && key.mayEnqueue(&bucket, info.Group, info.Flow)
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
		switch key := keyOf(r); {
		case err == nil && key != nil && !key.has([]Role{RoleRead}) && !j.mayEnqueue(key, &result):
			return shaper.ErrNotFound
		case err == nil:
			writeJSON(w, http.StatusOK, result.JSON())
		case errors.Is(err, shaper.ErrNotEnded):
			problem := newFault(codeNotEnded, "job %q is %s: ask again when it has ended, or enqueue with Prefer: wait", id, result.State).problem(r)
			problem.State = result.State
			problem.write(w)
			return nil
		case errors.Is(err, shaper.ErrNoResult):
			problem := newFault(codeNoResult, "job %q is %s, and nothing is kept of an answer: "+
				"the bucket keeps results for result_retention, and no more than results_max and results_bytes", id, result.State).problem(r)
			problem.State = result.State
			problem.write(w)
			return nil
		}
		return err
	})
}

// mayEnqueue reports whether a key is for the flow and the group of a result.
func (j oneJob) mayEnqueue(key *Key, result *shaper.JobResult) bool {
	bucket, err := j.bucket(result.Bucket)
	return err == nil && key.mayEnqueue(&bucket, result.Group, result.Flow)
}
