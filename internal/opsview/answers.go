package opsview

import "github.com/tundish-io/tundish/shaper"

// Purge is the result of a purge.
type Purge struct {
	Bucket string  `json:"bucket"`
	Group  *string `json:"group,omitempty"` // only of a purge of one, or of a flow in it
	Flow   *string `json:"flow,omitempty"`  // only of a purge of one
	Purged int64   `json:"purged"`
	Left   int64   `json:"left"` // moved aside, and removed by the sweeper

	Matched *int64 `json:"matched,omitempty"` // of a dry run: the jobs that it would drop
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
	Matched   int       `json:"matched"`
	Looked    int       `json:"looked_at"`
	Moved     *int      `json:"moved,omitempty"`
	Dropped   *int      `json:"dropped,omitempty"`
	Full      int       `json:"full,omitempty"`       // left dead: the bucket is full
	FlowFull  int       `json:"flow_full,omitempty"`  // or their flow is, or would be one too many
	GroupFull int       `json:"group_full,omitempty"` // or their group
	Disabled  int       `json:"flow_disabled,omitempty"`
	Unknown   int       `json:"unknown,omitempty"`  // of ids to redrive: no dead letter has the id
	NotDead   []NotDead `json:"not_dead,omitempty"` // of ids to drop: jobs that are no dead letters
	Next      string    `json:"next,omitempty"`
	Waiting   bool      `json:"waiting,omitempty"` // no more can be moved for now
}

// NotDead is a job that was to be dropped and is no dead letter.
type NotDead struct {
	ID    string       `json:"id"`
	State shaper.State `json:"state,omitempty"` // none of an unknown job
}

// EnabledFlow is a flow that was enabled, and what became of its dead letters, if these were to be redriven.
type EnabledFlow struct {
	Flow
	Redriven *FlowRedriven `json:"redriven,omitempty"`
}

// FlowRedriven says what became of the dead letters of a flow.
type FlowRedriven struct {
	Moved int `json:"moved"`
	Full  int `json:"full"` // left dead: there was no room
}
