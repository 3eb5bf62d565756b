package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

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
	return f.means(state) && (f.Flow == nil || *f.Flow == flow) && (f.Group == nil || *f.Group == group) &&
		(f.Since.IsZero() && f.Until.IsZero() || slices.ContainsFunc(times, f.spans))
}

// spans reports whether a time is between Since and Until.
func (f *JobFilter) spans(at time.Time) bool {
	return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// means reports whether the filter means jobs in a state.
func (f *JobFilter) means(state shaper.State) bool {
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
