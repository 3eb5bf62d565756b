package shaper

import (
	"slices"
	"time"
	"unicode/utf8"
)

// ResultSettings configure which responses a bucket keeps. Without a Retention it keeps none.
type ResultSettings struct {
	Retention time.Duration `setting:"result_retention,redis=result_retention"` // how long the result of a job that ended is kept; 0: not at all

	// Max and Bytes bound the results that are kept or awaited: their number, and the bytes of their heads and bodies. Above a bound, the flow that
	// uses most of it drops its oldest results; in a bucket without flows, the caller that uses most.
	Max   int64 `setting:"results_max,redis=results_max"`
	Bytes int64 `setting:"results_bytes,bytes,redis=results_bytes"`

	// MaxBody is how many bytes of a response body are read for a result, kept or awaited. The rest is cut, and the result says so. With 0 results
	// have neither body nor headers, and one is kept for each job that ended, with or without a response: a delivery log.
	MaxBody int64 `setting:"max_result,bytes"`
}

// Bounds of ResultSettings.
const (
	MaxResults      = 10_000_000
	MaxResultsBytes = 1 << 40
	MaxResultBody   = 4 << 20 // one script writes it
)

// DefaultResultSettings returns settings that keep nothing. With a Retention, they keep at most 10,000 results in 64 MiB.
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

// Answer is the response of the downstream to an attempt.
type Answer struct {
	Status  int
	Headers map[string][]string
	Body    []byte
	Cut     bool // the body is incomplete: it was too long, or it broke off
	Broken  bool // it broke off before the wanted bytes were read

	// Base is the URL below which the request went, if its flow has its own; else "".
	Base string
}

// JobResult is how a job ended (done, dead or dropped), with the response to its last attempt.
type JobResult struct {
	ID     string
	Bucket string
	Flow   string
	Group  string
	Owner  Owner // its caller
	State  State // done, dead or dropped

	// Answer is the response of the downstream; nil if there was none. To an API, 404 is a response.
	Answer *Answer

	// For a job that is dead, or was sent once without a response: a Cause constant, the worker's word, and a sentence.
	Cause  string
	Reason string
	Detail string

	// Earlier holds the outcomes of the previous deliveries of a done job, the oldest first, if its result is kept: up to [RetryPolicy.KeepAttempts],
	// in 2 KiB at most.
	Earlier []JobAttempt

	Attempts int           // deliveries, the last one included
	Enqueued time.Time     // these times are by the clock of Redis
	Departed time.Time     // of the last attempt; zero if nothing was sent
	Took     time.Duration // from then until it had ended
}

// Deliveries returns Earlier and the last delivery, if one departed.
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

// ResultJSON is the JSON form of a [JobResult], in the HTTP API and in callbacks.
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

// JSON returns the result in its JSON form: the body as text if it is valid UTF-8, and times in UTC to the microsecond.
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

// micros returns a time in UTC to the microsecond, as in Redis, and nil for the zero time.
func micros(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Truncate(time.Microsecond))
}
