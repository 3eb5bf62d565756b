package httpapi

import (
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// JobName names a job.
type JobName struct {
	BucketName
	ID string `json:"id" in:"path"`
}

// JobQuery selects the jobs of a list.
type JobQuery struct {
	BucketName

	// In this state. `waiting` means queued, scheduled and retrying, `later` scheduled and retrying. `done` lists jobs whose results are kept, the
	// newest first.
	State shaper.State `json:"state" in:"query" jsonschema:"enum=queued,enum=scheduled,enum=retrying,enum=in_flight,enum=waiting,enum=later,enum=done"`

	// Of this flow.
	Flow *string `json:"flow" in:"query"`

	// Of this group.
	Group *string `json:"group" in:"query"`

	// Enqueued then or later. With the state `done`: sent then or later, in one of the deliveries that are kept.
	Since time.Time `json:"since" in:"query"`

	// Enqueued before. With the state `done`: the same delivery was sent before.
	Until time.Time `json:"until" in:"query"`

	Page
}

// JobRetry selects the jobs to retry now: the jobs of one flow, or all.
type JobRetry struct {
	BucketName

	// The name of the flow.
	Flow *string `json:"flow,omitempty"`

	// The group of the flow, in a bucket with groups.
	Group *string `json:"group,omitempty"`

	// All jobs of the bucket that wait for another attempt. It excludes flow and group.
	All bool `json:"all,omitempty"`
}

// Page selects a page of a list of jobs.
type Page struct {
	// Include the payloads.
	Payload bool `json:"payload" in:"query"`

	// How many at most.
	Limit int `json:"limit" in:"query" jsonschema:"minimum=1,maximum=1000,default=100"`

	// The `next` of the previous response.
	Cursor string `json:"cursor" in:"query"`
}

// AttemptList lists the outcomes of a job's last attempts.
type AttemptList struct {
	Attempts []opsview.Attempt `json:"attempts"`
}

// DeadQuery selects the dead letters of a list.
type DeadQuery struct {
	BucketName
	operator.DeadFilter `in:"query"`
	Page

	// Skip this many of the newest; with no filter and no cursor. The response then has no next: add the number of its dead letters to the offset.
	Offset *int `json:"offset" in:"query" jsonschema:"minimum=0"`
}

// DeadReasonsQuery selects the dead letters whose reasons are counted.
type DeadReasonsQuery struct {
	BucketName
	operator.DeadFilter `in:"query"`

	Cursor string `json:"cursor" in:"query"` // `next` of a response
}

// DeadReasons are why jobs died.
type DeadReasons struct {
	// The most frequent first.
	Reasons []operator.DeadReason `json:"reasons"`
	Looked  int                   `json:"looked_at"`
	Next    string                `json:"next,omitempty"` // the cursor to go on with; none at the end
}

// DeadChoice selects the dead letters to change: by ids, by a filter, or all.
type DeadChoice struct {
	BucketName

	IDs []string `json:"ids,omitempty" jsonschema:"minItems=1,maxItems=200"`

	// Conditions are combined with AND.
	Filter operator.DeadFilter `json:"filter,omitzero"`

	// Every dead letter. An empty filter means that only with dry_run.
	All    bool   `json:"all,omitempty"`
	Cursor string `json:"cursor,omitempty"`

	// Only count; not with ids.
	DryRun bool `json:"dry_run,omitempty"`

	// The bucket's name. Required to drop dead letters, except with ids and with dry_run.
	Confirm string `json:"confirm,omitempty"`
}

// DeadRedrive selects the dead letters to redrive.
type DeadRedrive struct {
	DeadChoice

	// With all: the highest number to redrive; without a cursor, and the response has no next.
	Limit int `json:"limit,omitempty" jsonschema:"minimum=1,maximum=1000"`
}

// The operations of jobs and of dead letters.
var (
	ListJobs = &Operation[JobQuery, *opsview.JobPage]{
		ID: "listJobs", Method: "GET", Path: "/v1/buckets/{bucket}/jobs", Roles: []apikey.Role{apikey.RoleRead}, StrictQuery: true,
		Answer:   "One page of jobs.",
		Commands: []string{"job list"},
		Summary:  "Jobs that wait or are in flight",
		Description: `Jobs in flight come first, then the waiting jobs, flow by flow. Jobs that come, go or move meanwhile may be
missing, and some may be listed twice. A response has no payloads, unless they are asked for, and about 1 MiB of jobs. It examines 2000 jobs
at most, and at 16 MiB of what is kept of them: ` + "`next`" + ` is there as long as there may be more, also where ` + "`jobs`" + ` is empty. A key has four
lists at a time: further ones wait, and are answered 503 ` + "`overloaded`" + ` after 10 s.`,
	}

	ShowJob = &Operation[JobName, *opsview.Job]{
		ID: "showJob", Method: "GET", Path: "/v1/buckets/{bucket}/jobs/{id}", Roles: []apikey.Role{apikey.RoleEnqueue, apikey.RoleRead},
		Answer:   "The job. Of a settled one only id, bucket and state are known, and of one that is done what its result says, where that is kept.",
		Commands: []string{"job show", "dead show"},
		Summary:  "Show a job",
		Description: `A key with the role read, and a program of this machine where there are no keys, also see the job's headers, without
credentials, and how its last attempts ended. A key with the role enqueue alone sees the jobs of its caller, and of these those
in its flows and groups; any other is 404.`,
	}

	CancelJob = &Operation[JobName, *opsview.Job]{
		ID: "cancelJob", Method: "DELETE", Path: "/v1/buckets/{bucket}/jobs/{id}", Roles: []apikey.Role{apikey.RoleEnqueue}, Faults: []code{codeConflict},
		Answer:      "The job is cancelled, now or before.",
		Commands:    []string{"job cancel"},
		Summary:     "Cancel a waiting job",
		Description: "A key with the role enqueue alone cancels the jobs of its caller, and of these those in its flows and groups; any other is 404.",
	}

	RetryJobs = &Operation[JobRetry, *opsview.Retried]{
		ID: "retryJobs", Method: "POST", Path: "/v1/buckets/{bucket}/jobs/retry", Roles: []apikey.Role{apikey.RoleOperate}, Faults: []code{codeNoFlows, codeNoGroups},
		Answer:   "How many jobs are due now.",
		Commands: []string{"job retry"},
		Summary:  "Make jobs due that wait for another attempt",
		Description: `For a receiver that is repaired: jobs in backoff do not wait any longer. They keep their attempts, and leave in the order in which they
were due, at the pace of their flow and bucket. A hold and an open circuit breaker go on: release them first. Delayed jobs that were never sent keep
their time. It ends after 20 seconds: with ` + "`more`" + ` in the answer, send the request again for the jobs that are left. Safe to repeat.`,
	}

	ListAttempts = &Operation[JobName, *AttemptList]{
		ID: "listAttempts", Method: "GET", Path: "/v1/buckets/{bucket}/jobs/{id}/attempts", Roles: []apikey.Role{apikey.RoleRead},
		Answer:  "The oldest first. Of a settled job there are none, unless it is done and its result is kept.",
		Summary: "List how the last attempts of a job ended",
		Description: `Each attempt of a job that is not done is kept with its outcome: the last ` + "`retry.keep_attempts`" + ` of the bucket, in 2 KiB at
most. A redrive keeps them. When the job is cancelled or dropped, they go with it. Of a job that is done they stay for as long as its result is
kept (` + "`result_retention`" + `), and the last delivery follows them.`,
	}

	ShowResult = &Operation[JobName, *opsview.Result]{
		ID: "showResult", Method: "GET", Path: "/v1/buckets/{bucket}/jobs/{id}/result", Roles: []apikey.Role{apikey.RoleEnqueue, apikey.RoleRead}, Faults: []code{codeNotEnded, codeNoResult},
		Commands: []string{"job result"},
		Summary:  "Show how a job ended, and what was answered",
		Description: `A bucket keeps results for ` + "`result_retention`" + `, ` + "`results_max`" + ` of them in ` + "`results_bytes`" + ` at most: the flow that has the most drops its oldest ones. A result that a client waits for is
there without a retention, too: for 30 s, and for 5 s once the waiting producer has read it. 404 is ` + "`not-ended`" + ` as long as the job is under way, and ` + "`no-result`" + ` if nothing is kept.
A key with the role enqueue alone sees the results of its caller's jobs, as it sees the jobs.`,
	}

	ListDead = &Operation[DeadQuery, *opsview.DeadPage]{
		ID: "listDead", Method: "GET", Path: "/v1/buckets/{bucket}/dead", Roles: []apikey.Role{apikey.RoleRead}, StrictQuery: true,
		Answer:   "Some of them, with their headers but for credentials, and how their last attempts ended.",
		Commands: []string{"dead list", "dead export"},
		Summary:  "Dead letters, the newest first",
		Description: `All that is given has to hold. An answer has no payloads, unless they are asked for, and about 1 MiB of dead letters. It looks at 2000 at
most, and at 16 MiB of what is kept of them: ` + "`next`" + ` is there as long as there may be more, also where ` + "`dead`" + ` is empty. A key has four
lists at a time: further ones wait, and are answered 503 ` + "`overloaded`" + ` after 10 s.`,
	}

	ShowDeadReasons = &Operation[DeadReasonsQuery, *DeadReasons]{
		ID: "showDeadReasons", Method: "GET", Path: "/v1/buckets/{bucket}/dead/reasons", Roles: []apikey.Role{apikey.RoleRead}, StrictQuery: true,
		Commands: []string{"dead reasons"},
		Summary:  "Why jobs died, and how many of what",
		Description: `Sums up the dead letters that the filter means by cause, reason and status. It looks at 2000 at most, the newest first, and at 16 MiB of
what is kept of them: ` + "`next`" + ` is there as long as there may be more, and the sums of further answers are added by the client.`,
	}

	RedriveDead = &Operation[DeadRedrive, *opsview.DeadChange]{
		ID: "redriveDead", InParts: true, Method: "POST", Path: "/v1/buckets/{bucket}/dead/redrive", Roles: []apikey.Role{apikey.RoleOperate},
		Answer:   "What became of them.",
		Commands: []string{"dead redrive"},
		Summary:  "Put dead letters back in the queue",
		Description: `Give one of the three: ` + "`ids`" + ` lists the dead letters, ` + "`filter`" + ` selects them, and ` + "`all`" + ` takes all. Redriven jobs are sent at the
bucket's pace, with a fresh budget of attempts.

A filter and all start with the oldest dead letter, and examine 2000 in one request. Repeat the request with ` + "`next`" + ` as the cursor until the
response has no ` + "`next`" + `. Where ` + "`waiting`" + ` is true, wait 100 ms before that, and longer if nothing was moved. A dead letter without free capacity
is not skipped: a later request moves it. The cursor is all the state that there is: nothing goes on between two requests. Repeat a request
that failed unchanged. Dead letters that are added after the first request stay. A redrive leaves free capacity for producers: it fills a flow
and a group to 90 %, and the bucket to 90 % of the capacity for jobs of priority ` + "`low`" + `.`,
	}

	DropDead = &Operation[DeadChoice, *opsview.DeadChange]{
		ID: "dropDead", InParts: true, Method: "DELETE", Path: "/v1/buckets/{bucket}/dead", Roles: []apikey.Role{apikey.RoleAdmin},
		Answer:   "What became of them.",
		Commands: []string{"dead drop"},
		Summary:  "Drop dead letters for good",
		Description: `Give one of the three: ` + "`ids`" + ` lists the dead letters, ` + "`filter`" + ` selects them, and ` + "`all`" + ` takes all. A filter and all start with the oldest
dead letter, and examine 2000 in one request. Repeat the request with ` + "`next`" + ` as the cursor until the response has no ` + "`next`" + `.`,
	}
)
