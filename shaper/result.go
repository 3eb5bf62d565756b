package shaper

import (
	"slices"
	"time"
	"unicode/utf8"
)

// ResultSettings say what a bucket keeps of the answers to its jobs. It keeps none without a Retention.
type ResultSettings struct {
	Retention time.Duration `setting:"result_retention,redis=result_retention"` // how long the result of a job that ended is kept; 0: not at all

	// Max and Bytes bound the results that are kept or awaited: their number, and the bytes of their heads and bodies. The
	// flow that has the most of what is short drops its oldest ones; in a bucket without flows, the caller that has the most.
	Max   int64 `setting:"results_max,redis=results_max"`
	Bytes int64 `setting:"results_bytes,bytes,redis=results_bytes"`

	// MaxBody is how many bytes of an answer's body are read for a result, whether it is kept or awaited. The rest is
	// cut, and the result says so. With 0 a result has neither body nor headers, and is kept of each job that ended, answered or not: a log
	// of deliveries.
	MaxBody int64 `setting:"max_result,bytes"`
}

// Bounds of ResultSettings.
const (
	MaxResults      = 10_000_000
	MaxResultsBytes = 1 << 40
	MaxResultBody   = 4 << 20 // one script writes it
)

// DefaultResultSettings keep nothing; once there is a Retention, 10,000 results in 64 MiB at most.
func DefaultResultSettings() ResultSettings {
	return ResultSettings{Max: 10_000, Bytes: 64 << 20, MaxBody: 256 << 10}
}

// validate reports every fault, each with its key of the configuration.
func (r ResultSettings) validate() []error {
	var f faults
	if r.Retention < 0 || r.Retention > MaxDelay {
		f.add("result_retention", "%s: want 0s (none is kept) to %s", r.Retention, MaxDelay)
	}
	f.inRange("results_max", r.Max, 1, MaxResults)
	f.inRange("results_bytes", r.Bytes, 1, MaxResultsBytes)
	f.inRange("max_result", r.MaxBody, 0, MaxResultBody)
	return f.errs
}

// Answer is what the downstream answered to an attempt.
type Answer struct {
	Status  int
	Headers map[string][]string
	Body    []byte
	Cut     bool // the body has more than was read: it was too long, or it broke off
	Broken  bool // it broke off before what was to be read of it

	// Base is the URL below which the request went, where its flow has one of its own; else "".
	Base string
}

// JobResult is how a job ended, done, dead or dropped, and what was answered to its last attempt.
type JobResult struct {
	ID     string
	Bucket string
	Flow   string
	Group  string
	Owner  Owner // its caller
	State  State // done, dead or dropped

	// Answer is what the downstream answered; nil if it did not. To an API, 404 is an answer.
	Answer *Answer

	// Of a job that is dead, or that was sent once and got no answer: one of the Cause constants, the word of the worker, and a sentence.
	Cause  string
	Reason string
	Detail string

	// Earlier are how the deliveries before the last one ended, the oldest first, of a job that is done and whose result is kept: as many as
	// [RetryPolicy.KeepAttempts], in 2 KiB at most.
	Earlier []JobAttempt

	Attempts int           // deliveries, the last one included
	Enqueued time.Time     // these times are by the clock of Redis
	Departed time.Time     // of the last attempt; zero if nothing was sent
	Took     time.Duration // from then until it had ended
}

// Deliveries are Earlier and the last delivery, if one departed.
func (r *JobResult) Deliveries() []JobAttempt {
	if r.Departed.IsZero() {
		return r.Earlier
	}
	last := JobAttempt{At: r.Departed, Number: r.Attempts, Took: r.Took, Reason: r.Reason, Detail: r.Detail, Result: ResultDone}
	switch r.State {
	case StateDead:
		last.Result = ResultDead
	case StateDropped:
		last.Result = ResultDropped
	}
	for _, earlier := range r.Earlier { // deliveries that were held have numbers too
		last.Number = max(last.Number, earlier.Number+1)
	}
	if r.Answer != nil {
		last.Status = r.Answer.Status
	}
	return append(slices.Clone(r.Earlier), last)
}

// ResultJSON is a [JobResult] in JSON, as the HTTP API answers it and as callbacks tell it.
type ResultJSON struct {
	ID     string `json:"id"`
	Bucket string `json:"bucket"`
	Flow   string `json:"flow,omitempty"`
	Group  string `json:"group,omitempty"`
	State  State  `json:"state"`

	// Of the answer to the last attempt. Absent if there was none: reason says why.
	Status  int                 `json:"status,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`

	// Of an answer that is text.
	Body *string `json:"body,omitempty"`

	// A body that is no text.
	BodyBytes []byte `json:"body_base64,omitempty"`

	// The body had more than the bucket's max_result, or than a callback may have, or it broke off.
	Cut    bool   `json:"cut,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty" jsonschema:"example=http_500"`
	Detail string `json:"detail,omitempty"`

	// Deliveries, the last one included.
	Attempts   int        `json:"attempts"`
	EnqueuedAt *time.Time `json:"enqueued_at,omitempty"`

	// Of the last attempt, by the clock of Redis.
	DepartedAt *time.Time `json:"departed_at,omitempty"`

	// From then until it had ended.
	Took float64 `json:"took_seconds"`
}

// JSON is the result as JSON has it: the body as text if it is that, and times in UTC to the microsecond.
func (r *JobResult) JSON() *ResultJSON {
	view := &ResultJSON{
		ID: r.ID, Bucket: r.Bucket, Flow: r.Flow, Group: r.Group, State: r.State, Cause: r.Cause, Reason: r.Reason, Detail: r.Detail, Attempts: r.Attempts,
		EnqueuedAt: micros(r.Enqueued), DepartedAt: micros(r.Departed), Took: r.Took.Seconds(),
	}
	if a := r.Answer; a != nil {
		view.Status, view.Headers, view.Cut = a.Status, a.Headers, a.Cut
		if utf8.Valid(a.Body) {
			view.Body = new(string(a.Body))
		} else {
			view.BodyBytes = a.Body
		}
	}
	return view
}

// micros is a time in UTC to the microsecond, as Redis has it. The zero time is absent.
func micros(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Truncate(time.Microsecond))
}
