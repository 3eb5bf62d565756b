package operator

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// Job reads a job of a bucket.
type Job struct {
	op         *Operator
	bucket, id string
}

// Job names a job of a bucket.
func (b Bucket) Job(id string) Job { return Job{b.op, b.name, id} }

// Info returns the state of the job, or [shaper.ErrNotFound]. One round trip; one more if the bucket has flows, one if this operator has not used it
// yet, and one if there is no such job.
func (j Job) Info(ctx context.Context) (shaper.JobInfo, error) {
	return j.op.store.Job(ctx, j.bucket, j.id)
}

// Result returns how the job ended, and what was answered, if that is kept. Before the end it is [shaper.ErrNotEnded], later
// [shaper.ErrNoResult], and [shaper.ErrNotFound] if the bucket remembers no such job. One round trip.
func (j Job) Result(ctx context.Context) (shaper.JobResult, error) {
	return j.op.store.Result(ctx, j.bucket, j.id)
}

// JobControl reads and cancels a job.
type JobControl struct {
	Job
	by string
}

// Job names a job of a bucket, to change it.
func (b BucketControl) Job(id string) JobControl { return JobControl{b.Bucket.Job(id), b.by} }

// Cancel cancels a job that waits and returns its state afterwards: [shaper.StateCancelled] if that worked, now or earlier; any other state says why
// not. [shaper.ErrNotFound] if there is no such job. One round trip; two if the bucket has flows, and two more if it is not configured here.
func (j JobControl) Cancel(ctx context.Context) (shaper.State, error) {
	state, err := j.op.store.Cancel(ctx, j.bucket, j.id, "")
	if state == shaper.StateCancelled {
		control{j.op, j.by}.note(ctx, j.bucket, metrics.ActionCancel, "job", j.id)
	}
	return state, err
}

// HaveJob returns which of these buckets have a job of this id, or remember one, or have just forgotten it. Two round trips.
func (o *Operator) HaveJob(ctx context.Context, id string, buckets ...string) ([]string, error) {
	return o.store.HaveJob(ctx, id, buckets...)
}
