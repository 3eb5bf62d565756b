package opsview

import (
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// Result is how a job ended, and what was answered.
type Result struct {
	ID         string              `json:"id"`
	Bucket     string              `json:"bucket"`
	State      shaper.State        `json:"state"`
	Status     int                 `json:"status,omitempty"` // of the answer, if there was one
	Headers    map[string][]string `json:"headers,omitempty"`
	Body       *string             `json:"body,omitempty"` // of an answer that is text
	BodyBytes  []byte              `json:"body_base64,omitempty"`
	Cut        bool                `json:"cut,omitempty"` // the body had more
	Cause      string              `json:"cause,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Detail     string              `json:"detail,omitempty"`
	Attempts   int                 `json:"attempts"`
	EnqueuedAt *time.Time          `json:"enqueued_at,omitempty"`
	DepartedAt *time.Time          `json:"departed_at,omitempty"` // the last attempt
	Took       float64             `json:"took_seconds"`
}

// ResultOf makes the view of a result.
func ResultOf(r *shaper.JobResult) *Result {
	view := &Result{
		ID: r.ID, Bucket: r.Bucket, State: r.State, Cause: r.Cause, Reason: r.Reason, Detail: r.Detail, Attempts: r.Attempts,
		EnqueuedAt: micros(r.Enqueued), DepartedAt: micros(r.Departed), Took: r.Took.Seconds(),
	}
	if a := r.Answer; a != nil {
		view.Status, view.Headers, view.Cut = a.Status, a.Headers, a.Cut
		if text := string(a.Body); utf8.ValidString(text) {
			view.Body = &text
		} else {
			view.BodyBytes = a.Body
		}
	}
	return view
}

// micros writes a time in UTC to the microsecond, as Redis has it. The zero time is absent.
func micros(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Truncate(time.Microsecond))
}
