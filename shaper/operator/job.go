package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// Job is the handle of a job of a bucket. To cancel it needs an author: see [Operator.As].
type Job struct {
	op         *Operator
	bucket, id string
}

// Job returns the handle of a job of the bucket. It does not ask Redis whether the job exists.
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

// Cancel cancels a job that waits and returns its state afterwards: [shaper.StateCancelled] if that worked, now or earlier; any other state says why
// not. [shaper.ErrNotFound] if there is no such job. One round trip; two if the bucket has flows, and two more if it is not configured here.
func (j Job) Cancel(ctx context.Context) (shaper.State, error) {
	state, err := j.op.cancel(ctx, j.bucket, j.id, "")
	if state == shaper.StateCancelled {
		j.op.note(ctx, j.bucket, metrics.ActionCancel, "job", j.id)
	}
	return state, err
}

// cancel cancels a job that waits; with [shaper.StateDead], it drops a dead letter.
func (o *Operator) cancel(ctx context.Context, bucket, id string, state shaper.State) (shaper.State, error) {
	if err := o.hasAuthor(); err != nil {
		return "", err
	}
	return o.store.Cancel(ctx, bucket, id, state)
}

// HaveJob returns which of these buckets have a job of this id, or remember one, or have just forgotten it. Two round trips.
func (o *Operator) HaveJob(ctx context.Context, id string, buckets ...string) ([]string, error) {
	return o.store.HaveJob(ctx, id, buckets...)
}

// JobFilter selects jobs that wait or are in flight. A zero field matches everything.
type JobFilter struct {
	State shaper.State // queued, scheduled, retrying or in_flight; AnyWaiting or AnyLater; or done: jobs whose results are kept
	Flow  *string      // "" is a flow too
	Group *string      // the same
	Since time.Time    // enqueued then or later; for jobs that are done: a kept delivery departed then or later
	Until time.Time    // enqueued earlier; for jobs that are done: the same delivery departed earlier
}

// Words for several states at once, in a [JobFilter] only.
const (
	AnyWaiting shaper.State = "waiting" // queued, scheduled or retrying
	AnyLater   shaper.State = "later"   // scheduled or retrying: jobs that wait for their time
)

// Validate reports every fault, joined, each a [*shaper.FieldError]; or nil.
func (f *JobFilter) Validate() error {
	known := []shaper.State{shaper.StateQueued, shaper.StateScheduled, shaper.StateRetrying, shaper.StateInFlight, shaper.StateDone, AnyWaiting, AnyLater}
	switch {
	case f.State == shaper.StateDead:
		return &shaper.FieldError{Field: "state", Reason: "dead letters have a list of their own"}
	case f.State != "" && !slices.Contains(known, f.State):
		return &shaper.FieldError{Field: "state", Reason: fmt.Sprintf("%q: want one of %v", f.State, known)}
	}
	return nil
}

// matches reports whether the filter means a job: one of the times is between Since and Until.
func (f *JobFilter) matches(state shaper.State, group, flow string, times ...time.Time) bool {
	return f.matchesState(state) && (f.Flow == nil || *f.Flow == flow) && (f.Group == nil || *f.Group == group) &&
		(f.Since.IsZero() && f.Until.IsZero() || slices.ContainsFunc(times, f.spans))
}

// spans reports whether a time is between Since and Until.
func (f *JobFilter) spans(at time.Time) bool {
	return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// matchesState reports whether the filter means jobs in a state.
func (f *JobFilter) matchesState(state shaper.State) bool {
	later := state == shaper.StateScheduled || state == shaper.StateRetrying
	switch f.State {
	case "":
		return true
	case AnyWaiting:
		return later || state == shaper.StateQueued
	case AnyLater:
		return later
	default:
		return f.State == state
	}
}
