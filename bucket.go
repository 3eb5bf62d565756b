package tundish

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Bucket is a bucket whose jobs carry a T: as JSON, or as it is where T is []byte.
type Bucket[T any] struct{ name string }

// Define names a bucket and the type of its payloads. The settings of the bucket are in Redis: the program that works it has written them,
// or a dispatcher with a configuration file.
func Define[T any](name string) Bucket[T] { return Bucket[T]{name} }

// Name is the name of the bucket.
func (b Bucket[T]) Name() string { return b.name }

// Option says more of a job than its payload: one of [ID], [Flow], [In], [At], [Priority], [InBundle], or any function that changes it.
type Option func(*Job)

// ID names the job, by 1 to 255 visible ASCII characters. The same id is the same job: enqueued twice, it is in the bucket once. Else a job gets
// an id of its own.
func ID(id string) Option { return func(j *Job) { j.ID = id } }

// Flow names whose job it is, such as a customer: in a bucket with flows they take turns.
func Flow(name string) Option { return func(j *Job) { j.Flow = name } }

// In has the job leave after a delay at the earliest.
func In(delay time.Duration) Option { return func(j *Job) { j.Delay = delay } }

// At has the job leave at a time at the earliest.
func At(earliest time.Time) Option { return func(j *Job) { j.NotBefore = earliest } }

// Priority is which of the jobs in its bucket go first.
func Priority(p shaper.Priority) Option { return func(j *Job) { j.Priority = p } }

// InBundle names the bundle of the job: [producer.Client.OpenBundle] of [Client.Producer] has opened it.
func InBundle(id string) Option { return func(j *Job) { j.Bundle = id } }

// Job makes the job of a payload, for [Client.Enqueue] and the packages below.
func (b Bucket[T]) Job(payload T, options ...Option) (Job, error) {
	job := Job{Bucket: b.name}
	if raw, ok := any(payload).([]byte); ok {
		job.Payload = raw
	} else {
		var err error
		if job.Payload, err = json.Marshal(payload); err != nil {
			return Job{}, fmt.Errorf("bucket %q: the payload cannot be written as JSON: %w", b.name, err)
		}
	}
	for _, set := range options {
		set(&job)
	}
	return job, nil
}

// Enqueue puts a job in. A job that is not let in, as the bucket is full or a limit of it is used up, is a [*RefusedError]: its receipt says
// why, and after which time another try is worth it. After any other error it is not known whether the job is in: enqueue it
// again under the same [ID], which is in the receipt, and it is in once.
//
// It is one round trip, which concurrent calls share. When Redis is down, the error comes after 1.5 s at most.
func (b Bucket[T]) Enqueue(ctx context.Context, c *Client, payload T, options ...Option) (Receipt, error) {
	job, err := b.Job(payload, options...)
	if err != nil {
		return Receipt{}, err
	}
	receipts, err := c.Enqueue(ctx, job)
	var receipt Receipt
	if len(receipts) > 0 {
		receipt = receipts[0]
	}
	if err == nil && receipt.Refusal != nil {
		err = &RefusedError{Receipt: receipt}
	}
	return receipt, err
}

// payloadOf reads what Job has written.
func (b Bucket[T]) payloadOf(a *Attempt) (payload T, err error) {
	if raw, ok := any(&payload).(*[]byte); ok {
		*raw = a.Payload
		return payload, nil
	}
	err = json.Unmarshal(a.Payload, &payload)
	return payload, err
}
