package opsview

import (
	"net/http"

	"github.com/tundish-io/tundish/shaper"
)

// Purge is the result of a purge.
type Purge struct {
	Bucket string `json:"bucket"`

	// Only of a purge of one group, or of a flow in one.
	Group *string `json:"group,omitempty"`

	// Only of a purge of one flow.
	Flow *string `json:"flow,omitempty"`

	// Jobs that were dropped.
	Purged int64 `json:"purged"`

	// Entries that were moved out and are not removed yet.
	Left int64 `json:"left"`

	// Only with dry_run: how many jobs a purge would drop now. For a flow, a group and a bucket with flows, delayed jobs and retries are included, also
	// with keep_later.
	Matched *int64 `json:"matched,omitempty"`

	Unfinished bool `json:"-"` // the sweeper removes the rest
}

// Retried is the result of making retries due.
type Retried struct {
	Bucket string `json:"bucket"`

	// Jobs that are due now.
	Jobs int64 `json:"jobs"`

	// True if the time ran out before all jobs were read: send the request again. Absent otherwise.
	More bool `json:"more,omitempty"`
}

// Status returns the HTTP status.
func (p *Purge) Status() int {
	if p.Unfinished {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// JobPage is one page of jobs.
type JobPage struct {
	Jobs   []*Job `json:"jobs"`
	Looked int    `json:"looked_at"`
	Next   string `json:"next,omitempty"` // the cursor to go on with; none at the end
}

// DeadPage is one page of dead letters.
type DeadPage struct {
	Dead   []*Job `json:"dead"`
	Looked int    `json:"looked_at"`
	Next   string `json:"next,omitempty"` // the cursor to go on with; none at the end
}

// DeadChange is the result of a change to dead letters.
type DeadChange struct {
	// Dead letters that the filter matched, of those that were read.
	Matched int `json:"matched"`
	Looked  int `json:"looked_at"`

	// Back in the queue.
	Moved   *int `json:"moved,omitempty"`
	Dropped *int `json:"dropped,omitempty"`

	// Still dead, because the bucket is full: next continues with them.
	Full int `json:"full,omitempty"`

	// Still dead, because their flow is full or would be one too many: the next round includes them.
	FlowFull int `json:"flow_full,omitempty"`

	// The same of their group.
	GroupFull int `json:"group_full,omitempty"`

	// Still dead, because their flow is disabled.
	Disabled int `json:"flow_disabled,omitempty"`

	// Ids to redrive that are no dead letter.
	Unknown int `json:"unknown,omitempty"`

	// Ids to drop that are no dead letter.
	NotDead []NotDead `json:"not_dead,omitempty"`

	// The cursor to continue with. Absent when all is done.
	Next string `json:"next,omitempty"`

	// No more can be moved for now: continue with next after jobs were sent.
	Waiting bool `json:"waiting,omitempty"`
}

// NotDead is a job that was to be dropped and is no dead letter.
type NotDead struct {
	ID    string       `json:"id"`
	State shaper.State `json:"state,omitempty"` // none of an unknown job
}

// RemovedFlow lists what the removal of a flow has dropped or, with dry_run, would drop.
type RemovedFlow struct {
	Bucket string  `json:"bucket"`
	Group  *string `json:"group,omitempty"`
	Flow   string  `json:"flow"`

	// Jobs that waited, also delayed ones and retries.
	Waiting int64 `json:"waiting"`

	// Dead letters.
	Dead int `json:"dead"`

	// Kept results.
	Results int `json:"results"`

	// The own state of the flow: `settings`, `pause`, `disabled`, `hold` (also an open circuit breaker and an adaptive rate). In the last response.
	Own []string `json:"own"`

	// Jobs in flight, which are kept and end as usual. In the last response.
	InFlight int64 `json:"in_flight"`

	// The cursor to go on with. Absent at the end.
	Next string `json:"next,omitempty"`
}

// EnabledFlow is a flow that was enabled, and what became of its dead letters if they were to be redriven.
type EnabledFlow struct {
	Flow

	// Only with redrive=true.
	Redriven *FlowRedriven `json:"redriven,omitempty"`
}

// FlowRedriven is the result of redriving a flow's dead letters.
type FlowRedriven struct {
	Moved int `json:"moved"`

	// Still dead, because the bucket, the group or the flow is full. Later dead letters were not tried.
	Full int `json:"full"`
}

// Result is how a job ended, with the response.
type Result = shaper.ResultJSON
