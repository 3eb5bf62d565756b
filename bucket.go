package tundish

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Bucket is a bucket whose jobs carry a T: as JSON, or unchanged if T is []byte.
type Bucket[T any] struct{ name string }

// Define names a bucket and the type of its payloads. The settings of the bucket are in Redis: the program that works it has written them, or a
// dispatcher with a configuration file.
func Define[T any](name string) Bucket[T] { return Bucket[T]{name} }

// Name is the name of the bucket.
func (b Bucket[T]) Name() string { return b.name }

// Option sets a field of a job besides its payload: one of [ID], [Flow], [In], [At], [Priority], [InBundle], or any function that changes the job.
type Option func(*Job)

// ID names the job, by 1 to 255 visible ASCII characters. The same id is the same job: enqueued twice, it is in the bucket once. Without it a job gets
// an id of its own.
func ID(id string) Option { return func(j *Job) { j.ID = id } }

// Flow names the flow of the job, such as a customer: in a bucket with flows they take turns.
func Flow(name string) Option { return func(j *Job) { j.Flow = name } }

// In delays the job: it departs after the delay at the earliest.
func In(delay time.Duration) Option { return func(j *Job) { j.Delay = delay } }

// At sets the earliest time at which the job departs.
func At(earliest time.Time) Option { return func(j *Job) { j.NotBefore = earliest } }

// Priority sets which of the jobs in its bucket go first.
func Priority(p shaper.Priority) Option { return func(j *Job) { j.Priority = p } }

// InBundle adds the job to a bundle that [producer.Client.OpenBundle] of [Client.Producer] has opened.
func InBundle(id string) Option { return func(j *Job) { j.Bundle = id } }

// Job builds the job of a payload, for [Client.Enqueue] and the packages below.
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

// Enqueue enqueues a job. A job that is refused, because the bucket is full or a limit is used up, is a [*RefusedError]: its receipt has the reason, and
// the time after which to retry. After any other error the outcome is unknown. Enqueue the job again under the same [ID], which is in the receipt: it is
// then in the bucket once.
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

// payloadOf decodes the payload that Job has encoded.
func (b Bucket[T]) payloadOf(a *Attempt) (payload T, err error) {
	if raw, ok := any(&payload).(*[]byte); ok {
		*raw = a.Payload
		return payload, nil
	}
	err = json.Unmarshal(a.Payload, &payload)
	return payload, err
}
