package opsview

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Attempt is how a delivery of a job ended that is not done.
type Attempt struct {
	At     time.Time `json:"at"`
	Number int       `json:"number"`
	Took   float64   `json:"took_seconds"`
	Status int       `json:"status,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Result string    `json:"result"` // retry, dead or held
}

// Attempts are the views of attempts, in their order; never nil.
func Attempts(list []shaper.JobAttempt) []Attempt {
	views := make([]Attempt, len(list))
	for i, a := range list {
		views[i] = Attempt{
			At: a.At.UTC(), Number: a.Number, Took: a.Took.Seconds(), Status: a.Status, Reason: a.Reason, Detail: a.Detail, Result: a.Result.String(),
		}
	}
	return views
}
