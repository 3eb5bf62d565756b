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

	// Entries that were moved aside and are not removed yet.
	Left int64 `json:"left"`

	// Only with dry_run: how many jobs a purge would drop now. Of a flow, a group and a bucket with flows, delayed jobs and retries are among
	// them, also with keep_later.
	Matched *int64 `json:"matched,omitempty"`

	Unfinished bool `json:"-"` // the sweeper removes those that are left
}

// Retried is the result of making retries due.
type Retried struct {
	Bucket string `json:"bucket"`

	// Jobs that are due now.
	Jobs int64 `json:"jobs"`

	// True if the time was up before all jobs were looked at: send the request again. Absent otherwise.
	More bool `json:"more,omitempty"`
}

// Status is that of HTTP.
func (p *Purge) Status() int {
	if p.Unfinished {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// JobPage are some jobs of a list.
type JobPage struct {
	Jobs   []*Job `json:"jobs"`
	Looked int    `json:"looked_at"`
	Next   string `json:"next,omitempty"` // the cursor to go on with; none at the end
}

// DeadPage are some dead letters of a list.
type DeadPage struct {
	Dead   []*Job `json:"dead"`
	Looked int    `json:"looked_at"`
	Next   string `json:"next,omitempty"` // the cursor to go on with; none at the end
}

// DeadChange is what became of dead letters.
type DeadChange struct {
	// That the filter means, of those that were looked at.
	Matched int `json:"matched"`
	Looked  int `json:"looked_at"`

	// Back in the queue.
	Moved   *int `json:"moved,omitempty"`
	Dropped *int `json:"dropped,omitempty"`

	// Left dead for now, as the bucket is full: next leads to them.
	Full int `json:"full,omitempty"`

	// Left dead for now, as their flow is full, or would be one too many: the next round has them.
	FlowFull int `json:"flow_full,omitempty"`

	// The same of their group.
	GroupFull int `json:"group_full,omitempty"`

	// Left dead, as their flow is disabled.
	Disabled int `json:"flow_disabled,omitempty"`

	// Of ids to redrive: those of no dead letter.
	Unknown int `json:"unknown,omitempty"`

	// Of ids to drop: those of no dead letter.
	NotDead []NotDead `json:"not_dead,omitempty"`

	// The cursor to go on with. Absent where nothing is left to do.
	Next string `json:"next,omitempty"`

	// No more can be moved for now: go on with next when jobs have left.
	Waiting bool `json:"waiting,omitempty"`
}

// NotDead is a job that was to be dropped and is no dead letter.
type NotDead struct {
	ID    string       `json:"id"`
	State shaper.State `json:"state,omitempty"` // none of an unknown job
}

// RemovedFlow says what a removal of a flow has dropped or, with dry_run, would drop.
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

	// What the flow had of its own: `settings`, `pause`, `disabled`, `hold` (also an open circuit breaker and an adaptive rate). In the last answer.
	Own []string `json:"own"`

	// Jobs in flight, which are left: they end as they would have. In the last answer.
	InFlight int64 `json:"in_flight"`

	// The cursor to go on with. Absent at the end.
	Next string `json:"next,omitempty"`
}

// EnabledFlow is a flow that was enabled, and what became of its dead letters, if these were to be redriven.
type EnabledFlow struct {
	Flow

	// Only with redrive=true.
	Redriven *FlowRedriven `json:"redriven,omitempty"`
}

// FlowRedriven says what became of the dead letters of a flow.
type FlowRedriven struct {
	Moved int `json:"moved"`

	// Left dead, as the bucket, the group or the flow is full. What lies behind them was not tried.
	Full int `json:"full"`
}
