package httpapi

import (
	"encoding/json"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
)

// BucketName names a bucket.
type BucketName struct {
	Bucket string `json:"bucket" in:"path"`
}

// BucketList lists buckets. By default the configured ones come first, in the order of the configuration, then the orphaned ones.
type BucketList struct {
	Buckets []*opsview.Bucket `json:"buckets"`

	// The cursor of the next page. Absent on the last one, and without a limit.
	Next string `json:"next,omitempty"`

	// Of all buckets that q matches. Only with a limit.
	Totals *BucketTotals `json:"totals,omitempty"`
}

// BucketTotals are sums of buckets.
type BucketTotals struct {
	Buckets int64 `json:"buckets"`

	// Jobs that wait, also for their time, and those in flight.
	Unfinished int64 `json:"unfinished"`
	InFlight   int64 `json:"in_flight"`
	Dead       int64 `json:"dead"`

	// Buckets that need attention.
	Noted int64 `json:"noted"`
}

// BucketsQuery selects the buckets of a list.
type BucketsQuery struct {
	// Part of their names.
	Q string `json:"q" in:"query"`

	// By name, or those with the most first; with `notes` those that need attention first. Absent: as the configuration has them.
	Sort string `json:"sort" in:"query" jsonschema:"enum=name,enum=waiting,enum=in_flight,enum=dead,enum=oldest,enum=notes"`

	// How many at most. Absent: all.
	Limit int `json:"limit" in:"query" jsonschema:"minimum=1,maximum=1000"`

	// The `next` of the previous response.
	Cursor string `json:"cursor" in:"query"`
}

// BucketSettings changes settings of a bucket.
type BucketSettings struct {
	BucketName
	Settings json.RawMessage `json:"-" in:"body" schema:"BucketPatch"`
}

// BucketResets are settings of a bucket to reset.
type BucketResets struct {
	BucketName

	// One setting to reset; may be repeated. Without any, all are reset.
	Settings []string `json:"setting" in:"query"`
}

// BucketReset is one setting of a bucket to reset.
type BucketReset struct {
	BucketName
	Setting string `json:"setting" in:"path" schema:"Setting"`
}

// PauseReason says why something is paused.
type PauseReason struct {
	// At most 500 bytes. Shown with the pause.
	Reason string `json:"reason,omitempty"`
}

// BucketPause pauses a bucket.
type BucketPause struct {
	BucketName
	PauseReason
}

// BucketRelease releases a bucket.
type BucketRelease struct {
	BucketName

	// `true` also releases every flow of the bucket, within 20 seconds. If `more` is true in the response, send the request again for the remaining
	// flows. Disabled flows stay disabled. For a bucket without flows the response is 409 `no-flows`.
	AllFlows bool `json:"all_flows" in:"query"`
}

// BucketDrain starts a drain.
type BucketDrain struct {
	BucketName

	// Slower than the effective rate. A faster one changes nothing.
	Rate admission.Rate `json:"rate,omitzero"`

	// Departures after which it ends: retries count, and jobs returned unsent.
	Max        int64 `json:"max,omitempty" jsonschema:"minimum=1,maximum=100000000"`
	UntilEmpty bool  `json:"until_empty,omitempty"`
}

// PurgeRequest confirms a purge, or asks what it would drop.
type PurgeRequest struct {
	// The name of the bucket, the flow or the group. Required unless dry_run is true.
	Confirm *string `json:"confirm,omitempty"`

	// Keep delayed jobs and retries.
	KeepLater bool `json:"keep_later,omitempty"`

	// Only count.
	DryRun bool `json:"dry_run,omitempty"`
}

// BucketPurge purges a bucket.
type BucketPurge struct {
	BucketName
	PurgeRequest
}

// The operations of buckets.
var (
	ListBuckets = &Operation[BucketsQuery, *BucketList]{
		ID: "listBuckets", Method: "GET", Path: "/v1/buckets", Roles: []apikey.Role{apikey.RoleRead},
		Answer:   "First the configured ones in the order of the configuration, then the orphaned ones; or in the order of `sort`.",
		Commands: []string{"status", "bucket list", "pool show", "watch"},
		Summary:  "List all buckets, also those that left the configuration",
		Description: `With a limit the answer has a page of them, and sums of all that ` + "`q`" + ` leaves. Buckets that come or go between two pages may be missing, or be
there twice.`,
	}

	ShowBucket = &Operation[BucketName, *opsview.Bucket]{
		ID: "showBucket", Method: "GET", Path: "/v1/buckets/{bucket}", Roles: []apikey.Role{apikey.RoleRead},
		Commands: []string{"bucket show", "dead list", "watch"},
		Summary:  "Show a bucket",
	}

	SetBucket = &Operation[BucketSettings, *opsview.Bucket]{
		ID: "setBucket", Method: "PATCH", Path: "/v1/buckets/{bucket}", Roles: []apikey.Role{apikey.RoleAdmin},
		Commands: []string{"bucket set"},
		Summary:  "Change settings of a bucket for all processes at once",
		Description: `The given settings override all configurations, across restarts, until DELETE .../overrides. A new rate holds from the
next slot on. A rate of 0 is refused: pause the bucket instead, with a reason. After 503 the outcome is unknown, and it
is safe to send the change again.`,
	}

	ResetBucket = &Operation[BucketResets, *opsview.Bucket]{
		ID: "resetBucket", Method: "DELETE", Path: "/v1/buckets/{bucket}/overrides", Roles: []apikey.Role{apikey.RoleAdmin},
		Commands:    []string{"bucket reset"},
		Summary:     "Remove every override of a bucket",
		Description: "Safe to repeat, also if nothing was changed.",
	}

	ResetSetting = &Operation[BucketReset, *opsview.Bucket]{
		ID: "resetSetting", Method: "DELETE", Path: "/v1/buckets/{bucket}/overrides/{setting}", Roles: []apikey.Role{apikey.RoleAdmin},
		Summary: "Remove the override of one setting",
	}

	PauseBucket = &Operation[BucketPause, *opsview.Bucket]{
		ID: "pauseBucket", Method: "POST", Path: "/v1/buckets/{bucket}/pause", Roles: []apikey.Role{apikey.RoleOperate}, OptionalBody: true,
		Commands: []string{"bucket pause"},
		Summary:  "Stop departures from a bucket",
		Description: `No process claims jobs from now on. Jobs that were claimed already still leave, within 200 ms. New jobs are admitted
until the bucket is full: 202 without ` + "`eta`" + `, and then 429 without Retry-After. Leases, outcomes and retries go on.
To pause a paused bucket changes the author and the reason.`,
	}

	ResumeBucket = &Operation[BucketName, *opsview.Bucket]{
		ID: "resumeBucket", Method: "POST", Path: "/v1/buckets/{bucket}/resume", Roles: []apikey.Role{apikey.RoleOperate},
		Commands:    []string{"bucket resume"},
		Summary:     "Let a bucket run again, at its pace",
		Description: "It may send its burst at once, as after any quiet time. Safe to repeat.",
	}

	ReleaseBucket = &Operation[BucketRelease, *opsview.Bucket]{
		ID: "releaseBucket", Method: "POST", Path: "/v1/buckets/{bucket}/release", Roles: []apikey.Role{apikey.RoleOperate}, Faults: []code{codeNoFlows},
		Commands: []string{"bucket release"},
		Summary:  "End a hold or an open circuit breaker of a bucket",
		Description: `Forgets its adaptive rate too. Waiting jobs go on at once, at the bucket's pace. Its flows stay as they are, unless
` + "`all_flows`" + ` is true. Answers that come later may slow or hold it again. Safe to repeat.`,
	}

	DrainBucket = &Operation[BucketDrain, *opsview.Bucket]{
		ID: "drainBucket", Method: "POST", Path: "/v1/buckets/{bucket}/drain", Roles: []apikey.Role{apikey.RoleOperate}, OptionalBody: true, Faults: []code{codeConflict},
		Commands: []string{"bucket drain"},
		Summary:  "Have a bucket leak now, whatever its drain windows say",
		Description: `The bucket leaks until ` + "`max`" + ` jobs have left or, with ` + "`until_empty`" + ` or without ` + "`max`" + `, until nothing waits, is due or is in flight.
It leaks at the rate in force, or at ` + "`rate`" + ` if that is slower. A paused bucket stays paused. The drain is kept in Redis, and ends by
itself. One drain of a bucket runs at a time: during another one the response is 409 ` + "`conflicting-state`" + `.`,
	}

	StopDrain = &Operation[BucketName, *opsview.Bucket]{
		ID: "stopDrain", Method: "DELETE", Path: "/v1/buckets/{bucket}/drain", Roles: []apikey.Role{apikey.RoleOperate},
		Commands:    []string{"bucket drain"},
		Summary:     "Stop the drain of a bucket",
		Description: "Jobs that have a slot already still leave, within 200 ms. `changed` is false if no drain ran. Safe to repeat.",
	}

	PurgeBucket = &Operation[BucketPurge, *opsview.Purge]{
		ID: "purgeBucket", InParts: true, Method: "POST", Path: "/v1/buckets/{bucket}/purge", Roles: []apikey.Role{apikey.RoleAdmin},
		Answer:   "The purge is done, or the jobs are counted.",
		Commands: []string{"bucket purge"},
		Summary:  "Drop all waiting jobs of a bucket, for good",
		Description: `None of them departs from now on. Jobs in flight and jobs that come later stay. Purged jobs are ` + "`cancelled`" + `, and
remembered as long as any settled job. They count against the capacity until they are removed, some 100,000 a
second. The same request again is another purge, of the jobs that wait by then.`,
	}
)
