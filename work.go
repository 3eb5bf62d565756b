package tundish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// DefaultTimeout bounds a call of a function of [Bucket.Work] whose [Settings] name no other time.
const DefaultTimeout = time.Minute

// Settings are the settings of a bucket that this program works. The program owns them: its start writes them to Redis, for all programs. A zero field
// has the default of [shaper.DefaultBucket].
type Settings struct {
	Rate        string        // departures over all programs: "20/s", "500/m" or "1/h"
	Burst       int64         // departures at once after a quiet time; 0: 1
	PerFlow     string        // departures of each flow: see [Flow]. With it flows take turns, and every job names one. "": the bucket has no flows
	Quotas      []string      // limits of departures in any window, in addition to the rate: "2000/d"
	Capacity    int64         // unfinished jobs at most; 0: 10,000
	MaxInFlight int64         // calls at a time, over all programs; 0: as many as the rate starts within Timeout
	MaxAttempts int           // calls for a job, until it is a dead letter; 0: 16
	Timeout     time.Duration // of a call, by its context; 0: DefaultTimeout

	// Schedules enqueue jobs at the times of cron lines, once over all programs: see [Bucket.Schedule].
	Schedules []Schedule

	// Change changes any setting of the bucket, last.
	Change func(*shaper.Bucket)
}

// Handler is a bucket with the worker of its jobs.
type Handler struct {
	bucket shaper.Bucket
	worker shaper.Worker
	err    error
}

// Deliver returns a handler of any worker, such as those below package workers, and of a bucket with all its settings.
func Deliver(bucket shaper.Bucket, worker shaper.Worker) Handler {
	return Handler{bucket: bucket, worker: worker}
}

// Work returns a handler that calls do for each job, at the bucket's rate, for many jobs at a time. A nil error means that the job is done. [RetryIn],
// [Hold], [Dead] and [Skip] choose another outcome. After any other error, and after a panic, the job is retried, with growing waits, until the attempts
// of the bucket are used up. Then it is a dead letter, which an operator may redrive. A payload that is no T is a dead letter at once.
//
// The context ends with Timeout, when the program has lost the job, and when a stop waits no longer.
func (b Bucket[T]) Work(s Settings, do func(context.Context, T) error) Handler {
	bucket, err := s.bucket(b.name)
	timeout := cmp.Or(s.Timeout, DefaultTimeout)
	worker := func(ctx context.Context, a *Attempt) shaper.Outcome {
		payload, err := b.payloadOf(a)
		if err != nil {
			return shaper.Dead(workers.ReasonInvalid, fmt.Sprintf("the payload is no %T: %s", payload, err))
		}
		ctx, stop := context.WithTimeout(context.WithValue(ctx, attemptKey{}, a), timeout)
		defer stop()
		return outcomeOf(do(ctx, payload))
	}
	return Handler{bucket, shaper.WorkerFunc(worker), err}
}

func (s *Settings) bucket(name string) (shaper.Bucket, error) {
	b := shaper.DefaultBucket()
	var faults []error
	rate := func(text string) admission.Rate {
		r, err := admission.ParseRate(text)
		if err != nil {
			faults = append(faults, err)
		}
		return r
	}
	b.Name = name
	if s.Rate != "" {
		b.Rate = rate(s.Rate)
	}
	for _, text := range s.Quotas {
		b.Quotas = append(b.Quotas, rate(text))
	}
	if s.PerFlow != "" {
		flows := shaper.DefaultFlowSettings()
		flows.Key, flows.Rate = shaper.FlowKeyJob, rate(s.PerFlow)
		b.Flow = &flows
	}
	for _, one := range s.Schedules {
		b.Schedules = append(b.Schedules, one.Schedule)
		faults = append(faults, one.err)
	}
	b.Burst = cmp.Or(s.Burst, b.Burst)
	b.Capacity = cmp.Or(s.Capacity, b.Capacity)
	b.MaxInFlight = cmp.Or(s.MaxInFlight, b.MaxInFlight)
	b.Retry.MaxAttempts = cmp.Or(s.MaxAttempts, b.Retry.MaxAttempts)
	if s.Change != nil {
		s.Change(&b)
		b.Name = name
	}
	b.DeliveryTimeout = cmp.Or(b.DeliveryTimeout, s.Timeout, DefaultTimeout)
	if b.Rate.Count == 0 && errors.Join(faults...) == nil {
		faults = append(faults, errors.New(`Settings.Rate is missing: say how many jobs leave in which time, such as "20/s"`))
	}
	return b, errors.Join(faults...)
}

type attemptKey struct{}

// AttemptOf is the attempt for which a function of [Bucket.Work] was called, by its context: the job's ID, its Flow, the Number of the
// attempt. nil for another context.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// verdict is an error with the outcome of the job.
type verdict struct {
	outcome shaper.Outcome
	err     error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

func newVerdict(err error, outcome shaper.Outcome) error {
	if err == nil {
		err = errors.New(outcome.Reason)
	}
	return &verdict{outcome, err}
}

// Hold is for a downstream that asks for patience, as by a 429 with Retry-After. The job returns to the head of its queue, no attempt is counted, and
// its flow sends nothing for that time. In a bucket without flows the whole bucket sends nothing.
func Hold(wait time.Duration, err error) error {
	return newVerdict(err, shaper.Outcome{Result: shaper.ResultHeld, Reason: "held", RetryAfter: wait, Signal: shaper.SignalThrottled})
}

// RetryIn retries a job after a given time, instead of with the backoff. It counts an attempt. After that time the job departs as soon as the rate
// allows. A wait of 0 means the backoff. No wait is longer than the longest backoff of the bucket: 12 hours, unless [Settings].Change says more.
func RetryIn(wait time.Duration, err error) error {
	return newVerdict(err, shaper.Outcome{Result: shaper.ResultRetry, Reason: reasonError, RetryIn: wait, Signal: shaper.SignalFailed})
}

// Dead is for a job that no retry would help: it becomes a dead letter, which an operator may redrive.
func Dead(err error) error { return newVerdict(err, shaper.Dead("dead", "")) }

// Skip is for a job that is no longer needed: it ends, and leaves no dead letter.
func Skip(err error) error { return newVerdict(err, shaper.Dropped("skipped", "")) }

// reasonError is the reason of a retry without a known cause.
const reasonError = "error"

// outcomeOf returns the outcome of a job by a function's error, with its meaning for the adaptive rate and the circuit breaker of the bucket.
func outcomeOf(err error) shaper.Outcome {
	if err == nil {
		return shaper.Done(0)
	}
	detail := workers.Snippet([]byte(err.Error()))
	if v, ok := errors.AsType[*verdict](err); ok {
		outcome := v.outcome
		outcome.Detail = detail
		return outcome
	}
	outcome := shaper.Retry(reasonError, detail)
	switch {
	case errors.Is(err, context.Canceled): // by a stop, which does not count against the downstream
		outcome.Reason = workers.ReasonInterrupted
		return outcome
	case errors.Is(err, context.DeadlineExceeded):
		outcome.Reason = workers.ReasonTimeout
	}
	outcome.Signal = shaper.SignalFailed
	return outcome
}
