package opsview

import (
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/shellword"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Verdict says whether jobs of a bucket are delivered, and what blocks those that wait.
type Verdict struct {
	// `sends` only if the deliveries that succeeded in the last 30 seconds are at least 90 % of the rate, `empty` if nothing waits, otherwise the code of
	// the cause that blocks most jobs.
	Code operator.WhyCode `json:"code" jsonschema:"enum=empty,enum=sends,enum=paused,enum=no-dispatcher,enum=disabled,enum=missing,enum=closed,enum=breaker,enum=held,enum=quota,enum=budget,enum=in-flight,enum=adaptive-rate,enum=host-fault,enum=failing,enum=late,enum=rate,enum=starting,enum=slow,enum=later"`

	// The same in a few words, for people: a pause, or closed with the time of opening, takes precedence over an empty bucket.
	State string `json:"state" jsonschema:"example=closed\\, opens 22:00"`

	// For people, in one line.
	Sentence string `json:"sentence" jsonschema:"example=Sends 0 of 60/s. 1\\,018 wait\\, the oldest 31 min: 1\\,018 of endpoint-2 (breaker\\, http_500\\, since 21:12\\, next probe 21:44)"`

	// When the most frequent blocker may end, by the clock of Redis. Absent: not known, or only when an operator acts.
	Until *time.Time `json:"until,omitempty"`

	// The bucket needs attention: jobs are due and not delivered at its rate, and the cause is neither its timetable nor a rate that is kept.
	Problem bool `json:"problem"`

	// Deliveries a second that succeeded in the last 30 seconds.
	Succeeded float64 `json:"succeeded_per_second"`

	// Jobs that wait, also for a later time.
	Waits int64 `json:"waits"`

	// Of these, the jobs that are due.
	Due int64 `json:"due"`

	// The age of the oldest job that was seen. Absent: not known.
	OldestAge float64 `json:"oldest_age_seconds,omitempty"`

	// What blocks the waiting jobs, the most jobs first. The sum of their jobs is `waits`.
	Blocked []Blocked `json:"blocked"`

	// Only where flows were left out: `blocked` is an estimate from a sample.
	Sample *Sample `json:"sample,omitempty"`

	// Attempts that ended in the last minute.
	Attempts int64 `json:"attempts"`

	// Of these, the attempts that did not succeed.
	Failed int64 `json:"failed"`

	// Reason of the last one that did not succeed.
	Reason string `json:"reason,omitempty" jsonschema:"example=http_401"`

	// Why it is not known when the last of the waiting jobs is sent. Absent if `empty` of the bucket is known, and if nothing waits.
	EmptyUnknown string `json:"empty_unknown,omitempty" jsonschema:"example=4 flows are blocked"`

	// By how many jobs a second the backlog grows. Absent if it does not.
	Grows float64 `json:"grows_per_second,omitempty"`

	// When the bucket is full at that pace.
	Full *time.Time `json:"full,omitempty"`

	// Jobs that will remain at the `finish` of the delivery window at the current pace. Absent if none will.
	Left int64 `json:"left_at_finish,omitempty"`
}

// Blocked is one cause that keeps jobs from being delivered.
type Blocked struct {
	Code  operator.WhyCode `json:"code"`
	Scope shaper.Scope     `json:"scope" jsonschema:"enum=bucket,enum=pool,enum=group,enum=flow"`

	// Of the scope. Absent where `flows` is above 1.
	Name string `json:"name,omitempty"`

	// Only of a flow in a group.
	Group string `json:"group,omitempty"`

	// How many flows share the entry. Absent of another scope.
	Flows int64 `json:"flows,omitempty"`
	Jobs  int64 `json:"jobs"`

	// The age of the oldest of them that was seen. Absent: not known.
	OldestAge float64 `json:"oldest_age_seconds,omitempty"`

	// Absent: not known.
	Since *time.Time `json:"since,omitempty"`

	// When it ends at the earliest. Absent: not known, or only when an operator acts.
	Until *time.Time `json:"until,omitempty"`

	// Of a receiver's response.
	Reason string `json:"reason,omitempty" jsonschema:"example=http_500"`

	// The command that ends the cause, or shows what has to be repaired, without the name of the program. Absent: it ends by itself.
	Action string `json:"action,omitempty" jsonschema:"example=flow release webhooks endpoint-2"`

	// The command to run after the repair: it makes jobs due that wait for another attempt. Absent: they depart by themselves.
	Then string `json:"then,omitempty" jsonschema:"example=job retry webhooks --flow=acme"`
}

// Sample is how many flows of a bucket were read.
type Sample struct {
	Looked int64 `json:"looked_at"`
	Flows  int64 `json:"flows"`
}

// VerdictOf shows a verdict.
func VerdictOf(v *operator.Verdict) *Verdict {
	view := &Verdict{
		Code: v.Code, State: v.State(), Sentence: v.Sentence(), Problem: v.IsProblem(), Succeeded: v.Succeeded, Waits: v.Waits, Due: v.Due, OldestAge: v.OldestAge.Seconds(),
		Attempts: v.Attempts, Failed: v.Failed, Reason: v.Reason, EmptyUnknown: v.EmptyUnknown, Grows: v.Grows, Full: instant(v.Full), Left: v.Left, Blocked: []Blocked{},
	}
	if v.Looked < v.Flows {
		view.Sample = &Sample{v.Looked, v.Flows}
	}
	for i := range v.Blocked {
		c := &v.Blocked[i]
		view.Blocked = append(view.Blocked, Blocked{
			Code: c.Code, Scope: c.Scope, Name: c.Name, Group: c.Group, Flows: c.Flows, Jobs: c.Jobs, OldestAge: c.OldestAge.Seconds(),
			Since: instant(c.Since), Until: instant(c.Until), Reason: c.Reason, Action: shellword.Join(c.Action...), Then: shellword.Join(c.Then...),
		})
	}
	if v.Code != operator.WhySends && len(view.Blocked) > 0 {
		view.Until = view.Blocked[0].Until
	}
	return view
}

// Class returns how a view shows a bucket: "good", "bad", or "plain" for neither.
func (v *Verdict) Class() string {
	switch {
	case v.Problem:
		return "bad"
	case v.Code == operator.WhySends:
		return "good"
	}
	return "plain"
}

// help returns the command that helps with most of the jobs; "" if none does.
func (v *Verdict) help() string {
	for i := range v.Blocked {
		if v.Blocked[i].Action != "" {
			return v.Blocked[i].Action
		}
	}
	return ""
}

// InVerdict reports whether the verdict covers a note.
func (v *Bucket) InVerdict(note string) bool {
	isPaused := slices.ContainsFunc(v.Verdict.Blocked, func(b Blocked) bool { return b.Code == operator.WhyPaused && b.Scope == shaper.ScopeBucket })
	return note == v.Verdict.Sentence || isPaused && strings.HasPrefix(note, "paused ")
}
