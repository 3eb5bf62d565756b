package asynq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Client enqueues asynq tasks into buckets. It has the methods of *asynq.Client, with the same arguments and results, so a program that uses
// those changes one line. It is safe for concurrent use. The page "asynq reference" of the documentation lists every option and difference.
type Client struct {
	jobs   *producer.Client
	dialed *dialed // nil: the connection is the caller's
}

// NewClient returns a client that enqueues by jobs. [Dial] makes all that a client needs.
func NewClient(jobs *producer.Client) *Client { return &Client{jobs: jobs} }

// RefusedError says that Tundish rejected a task: the bucket is full, or a limit is exceeded. asynq has no such error. errors.As gives access to its
// Retry-After time.
type RefusedError struct {
	Bucket  string
	Refusal shaper.Refusal
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("bucket %q refuses the task: %s", e.Bucket, e.Refusal.Reason)
	if e.Refusal.Detail != "" {
		text += ": " + e.Refusal.Detail
	}
	if e.Refusal.RetryAfter > 0 {
		text += fmt.Sprintf(": retry in %s", e.Refusal.RetryAfter)
	}
	return text
}

// Enqueue is EnqueueContext without a context.
func (c *Client) Enqueue(task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), task, opts...)
}

// EnqueueContext enqueues a task into the bucket that the option Queue names, "default" without it. Of conflicting options the last one
// counts. The options of a task count first if [NewTask] made it. Options of asynq.NewTask are an error, because asynq does not export them.
//
// It returns [asynq.ErrDuplicateTask] for a task with Unique, and [asynq.ErrTaskIDConflict] for one with TaskID, that is there or
// remembered; a [*RefusedError]; an error that wraps [shaper.ErrUnknownBucket]; or a fault of the task. After any other error the outcome is
// unknown, as with asynq. It costs what [producer.Client.Enqueue] costs: one round trip, shared with concurrent calls.
func (c *Client) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if task == nil {
		return nil, errors.New("task cannot be nil")
	}
	if strings.TrimSpace(task.Type()) == "" {
		return nil, errors.New("task typename cannot be empty")
	}
	own, ok := optionsOf(task)
	if !ok {
		return nil, errors.New("asynq.NewTask was given options, which asynq does not export: make the task with NewTask of " +
			"github.com/tundish-io/tundish/workers/asynq, or give the options to Enqueue")
	}
	o, err := readOptions(slices.Concat(own, opts))
	if err != nil {
		return nil, err
	}
	bucket, err := c.jobs.InForce(ctx, o.queue)
	if err != nil {
		return nil, err
	}
	job, err := o.job(task, &bucket)
	if err != nil {
		return nil, err
	}
	receipts, err := c.jobs.Enqueue(ctx, job)
	if err != nil {
		return nil, err
	}
	r := receipts[0]
	if r.Duplicate || r.Refusal != nil && (r.Refusal.Reason == shaper.ReasonIDReused || r.Refusal.Reason == shaper.ReasonIDEnded) {
		if o.unique > 0 {
			return nil, fmt.Errorf("%w", asynq.ErrDuplicateTask)
		}
		return nil, fmt.Errorf("%w", asynq.ErrTaskIDConflict)
	}
	if r.Refusal != nil {
		return nil, &RefusedError{Bucket: o.queue, Refusal: *r.Refusal}
	}
	return o.info(task, &bucket, r), nil
}

// Ping asks Redis for a sign of life. One round trip.
func (c *Client) Ping() error { return c.jobs.Ping(context.Background()) }

// Close closes the producer.Client and the connections of [Dial]. Other connections to Redis stay open: they belong to the caller.
func (c *Client) Close() error {
	c.jobs.Close()
	if c.dialed == nil {
		return nil
	}
	return c.dialed.close()
}

// info returns the TaskInfo that asynq would return.
func (o *options) info(task *asynq.Task, bucket *shaper.Bucket, r shaper.Receipt) *asynq.TaskInfo {
	info := &asynq.TaskInfo{
		ID: r.ID, Queue: o.queue, Type: task.Type(), Payload: task.Payload(), Headers: task.Headers(),
		State: asynq.TaskStatePending, NextProcessAt: time.Now(), MaxRetry: bucket.Retry.MaxAttempts - 1,
		Timeout: o.timeout.Truncate(time.Second),
	}
	if o.hasMaxRetry {
		info.MaxRetry = o.maxRetry
	}
	if !o.deadline.IsZero() {
		info.Deadline = time.Unix(o.deadline.Unix(), 0)
	} else if o.timeout == 0 {
		info.Timeout = DefaultTimeout
	}
	if r.State == shaper.StateScheduled {
		info.State, info.NextProcessAt = asynq.TaskStateScheduled, o.processAt
	}
	return info
}
