package opsview

import (
	"cmp"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Attempt is the outcome of a delivery of a job.
type Attempt struct {
	// When it departed, by the clock of Redis.
	At time.Time `json:"at"`

	// The number of the delivery. Lost deliveries have numbers too.
	Number int `json:"number"`

	// From the departure to the outcome. 0 if nothing was sent.
	Took float64 `json:"took_seconds"`

	// HTTP status.
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty" jsonschema:"example=http_500"`

	// The error with its addresses, which the error of the job hides from the client that enqueued it.
	Detail string `json:"detail,omitempty"`

	// held: the downstream named a time to wait for. done: of the last delivery of a job that is done and whose result is kept.
	Result string `json:"result" jsonschema:"enum=retry,enum=dead,enum=held,enum=done"`
}

// Attempts returns the views of attempts for clients that may read the bucket, in their order; never nil.
func Attempts(list []shaper.JobAttempt) []Attempt {
	views := make([]Attempt, len(list))
	for i, a := range list {
		views[i] = Attempt{
			At: a.At.UTC(), Number: a.Number, Took: a.Took.Seconds(), Status: a.Status, Reason: a.Reason, Detail: cmp.Or(a.Private, a.Detail), Result: a.Result.String(),
		}
	}
	return views
}
