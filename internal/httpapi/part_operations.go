package httpapi

import (
	"encoding/json"
	"strings"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
)

// PartName names a flow or a group. The name is a parameter of the query, because it may be any text: also "", ".", ".." and "a/b". In a path, clients,
// proxies and net/http rewrite such names, so that /flows/../pause would pause the bucket.
type PartName interface {
	FlowName | GroupName
	part() (bucket, name string)
}

// FlowName names a flow of a bucket.
type FlowName struct {
	BucketName

	// The name of the flow, any text of at most 256 bytes.
	Flow string `json:"flow" in:"query" jsonschema:"required"`

	// The group of the flow. Required in a bucket with groups, 409 (no-groups) in any other.
	Group *string `json:"group" in:"query"`
}

func (n FlowName) part() (bucket, name string) { return n.Bucket, n.Flow }

// GroupName names a group of a bucket.
type GroupName struct {
	BucketName

	// The name of the group, any text of at most 256 bytes.
	Group string `json:"group" in:"query" jsonschema:"required"`
}

func (n GroupName) part() (bucket, name string) { return n.Bucket, n.Group }

// PartPage selects a page of a list of flows or groups.
type PartPage struct {
	// How many at most.
	Limit int `json:"limit" in:"query" jsonschema:"minimum=1,maximum=1000,default=100"`

	// The `next` of the previous response.
	Cursor string `json:"cursor" in:"query"`
}

// FlowQuery selects the flows of a list.
type FlowQuery struct {
	BucketName
	PartPage

	// Only flows of this group.
	Group *string `json:"group" in:"query"`

	// Only flows with this text in their name.
	Q string `json:"q" in:"query"`

	// `true` lists only flows that send nothing because of their receiver (disabled, held, or with a circuit breaker that is not closed), or whose
	// receiver fails: its last response was a 5xx, a timeout or no connection. A receiver that responds with 401, 403 or 404 works.
	Failing bool `json:"failing" in:"query"`

	// With `waiting`, the flows with the most waiting jobs come first, and flows without any are left out. Each page reads all flows.
	Sort string `json:"sort" in:"query" jsonschema:"enum=waiting"`

	// With `sort`: each page reads only about this many flows, the next ones, and lists the fullest of these. The response has their number in
	// `looked_at`.
	Look int `json:"look" in:"query" jsonschema:"minimum=1,maximum=20000"`
}

// GroupQuery selects the groups of a list.
type GroupQuery struct {
	BucketName
	PartPage
}

// FlowList are flows of a bucket.
type FlowList struct {
	Flows []*opsview.Flow `json:"flows"`

	// How many flows the page has read. Only with look.
	Looked int `json:"looked_at,omitempty"`

	// The cursor to go on with. Absent at the end.
	Next string `json:"next,omitempty"`
}

// GroupList are groups of a bucket.
type GroupList struct {
	Groups []*opsview.Group `json:"groups"`

	// The cursor to go on with. Absent at the end.
	Next string `json:"next,omitempty"`
}

// MayCreate is part of changes that would create a flow or a group if its name were mistyped.
type MayCreate struct {
	// `true` makes the change even if the bucket has no flow or group of this name now: no jobs, no settings, no pause. Without it the response is 404
	// (unknown-flow, unknown-group), because the name may be mistyped.
	Create bool `json:"create" in:"query"`
}

// PartPause pauses a flow or a group.
type PartPause[N PartName] struct {
	Part N `json:",inline"`
	MayCreate
	PauseReason
}

// PartPatch changes settings of a flow or a group.
type PartPatch[N PartName] struct {
	Part N `json:",inline"`
	MayCreate
	Settings json.RawMessage `json:"-" in:"body" schema:"$Patch"`
}

// PartReplacement replaces the settings of a flow or a group.
type PartReplacement[N PartName] struct {
	Part     N               `json:",inline"`
	Settings json.RawMessage `json:"-" in:"body" schema:"$Patch"`
}

// PartPurge purges a flow or a group.
type PartPurge[N PartName] struct {
	Part N `json:",inline"`
	PurgeRequest
}

// FlowEnable enables a flow.
type FlowEnable struct {
	FlowName

	// `true` also redrives its dead letters with the cause `flow-disabled`.
	Redrive bool `json:"redrive" in:"query"`
}

// FlowRemove removes a flow.
type FlowRemove struct {
	FlowName

	// The name of the flow. Required unless dry_run is true.
	Confirm *string `json:"confirm" in:"query"`

	// `true` only counts.
	DryRun bool `json:"dry_run" in:"query"`

	// The `next` of the previous response.
	Cursor string `json:"cursor" in:"query"`
}

// PartOperations are the operations that flows and groups have both: N names one, and V shows it.
type PartOperations[N PartName, V any] struct {
	Show    *Operation[N, *V]
	Set     *Operation[PartPatch[N], *V]
	Replace *Operation[PartReplacement[N], *V]
	Reset   *Operation[N, *V]
	Pause   *Operation[PartPause[N], *V]
	Resume  *Operation[N, *V]
	Purge   *Operation[PartPurge[N], *opsview.Purge]
}

var (
	partFaults = []code{codeNoFlows, codeNoGroups}

	// FlowOperations are the operations of flows, in addition to ListFlows, ReleaseFlow, EnableFlow and RemoveFlow.
	FlowOperations = partOperations[FlowName, opsview.Flow]("flow", `Any text may name a flow: one without jobs has zeros. Secrets are never shown, only their number and their
fingerprints. Headers are shown by name only, and the URL by its origin only: `+"`/***`"+` stands for a path and a query.`,
		"As for a bucket: its jobs are admitted, and other flows are not delayed.", "As for a bucket.",
		"`url`, `headers` and `secrets` stay unless they are named,"+`
because no client can read them to send them again; null removes them. A pause stays.

Jobs of the flow that name no URL go to `+"`url`"+`, before the bucket's. A job without a URL is still admitted only if the
bucket has one. `+"`headers` replace the headers of a job, and `secrets` sign (Standard Webhooks, `webhook-signature`)"+`. Both are
sent only to the origin of `+"`url`"+` or, without one, of the bucket's URL: no other receiver sees them.`)

	// GroupOperations are the operations of groups, in addition to ListGroups.
	GroupOperations = partOperations[GroupName, opsview.Group]("group",
		"It counts the waiting jobs and the jobs in flight of all its flows. Any text may name a group: one without jobs has zeros.",
		"As for a bucket, for all its flows: their jobs are admitted, and other groups are not delayed.", "As for a bucket, flow by flow.",
		"A group has no settings for deliveries: its flows have them. A pause stays.")
)

// partOperations returns the operations of flows or groups. The parameters are the texts that differ between the two.
func partOperations[N PartName, V any](kind, show, pause, purge, replace string) PartOperations[N, V] {
	id := func(verb string) string { return verb + strings.ToUpper(kind[:1]) + kind[1:] }
	path := "/v1/buckets/{bucket}/" + kind
	text := func(text string) string { return strings.ReplaceAll(text, "$", kind) }
	return PartOperations[N, V]{
		Show: &Operation[N, *V]{
			ID: id("show"), Method: "GET", Path: path, Roles: []apikey.Role{apikey.RoleRead}, Faults: partFaults,
			Commands: []string{text("$ show")},
			Summary:  text("Show one $"), Description: show,
		},
		Set: &Operation[PartPatch[N], *V]{
			ID: id("set"), Method: "PATCH", Path: path, Roles: []apikey.Role{apikey.RoleAdmin}, Faults: partFaults,
			Commands: []string{text("$ set"), text("$ reset")},
			Summary:  text("Change settings of one $, which override the settings for all $s of its bucket"),
			Description: text(`Settings that are not named stay; null returns a setting to the value for all $s. The change holds from the next departure
on, until it is deleted. Safe to repeat.`),
		},
		Pause: &Operation[PartPause[N], *V]{
			ID: id("pause"), Method: "POST", Path: path + "/pause", Roles: []apikey.Role{apikey.RoleOperate}, Faults: partFaults, OptionalBody: true,
			Commands: []string{text("$ pause")},
			Summary:  text("Stop departures of one $"), Description: pause,
		},
		Resume: &Operation[N, *V]{
			ID: id("resume"), Method: "POST", Path: path + "/resume", Roles: []apikey.Role{apikey.RoleOperate}, Faults: partFaults,
			Commands: []string{text("$ resume")},
			Summary:  text("Let a $ run again, at its pace"),
		},
		Purge: &Operation[PartPurge[N], *opsview.Purge]{
			ID: id("purge"), InParts: true, Method: "POST", Path: path + "/purge", Roles: []apikey.Role{apikey.RoleAdmin}, Faults: partFaults,
			Commands: []string{text("$ purge")},
			Answer:   "The purge is done, or the jobs are counted.",
			Summary:  text("Drop all waiting jobs of one $, for good"), Description: purge,
		},
		Replace: &Operation[PartReplacement[N], *V]{
			ID: id("replace"), Method: "PUT", Path: path, Roles: []apikey.Role{apikey.RoleAdmin}, Faults: partFaults,
			Summary:     text("Replace the settings that one $ has of its own"),
			Description: text("Settings that are not named return to the values for all $s. ") + replace,
		},
		Reset: &Operation[N, *V]{
			ID: id("reset"), Method: "DELETE", Path: path, Roles: []apikey.Role{apikey.RoleAdmin}, Faults: partFaults,
			Commands: []string{text("$ reset")},
			Summary:  text("Return one $ to the settings of its bucket"), Description: "A pause stays.",
		},
	}
}

// The operations of flows and groups that only one of both has.
var (
	ListFlows = &Operation[FlowQuery, *FlowList]{
		ID: "listFlows", Method: "GET", Path: "/v1/buckets/{bucket}/flows", Roles: []apikey.Role{apikey.RoleRead}, Faults: partFaults,
		Answer:   "A page of the list.",
		Commands: []string{"flow list"},
		Summary:  "List the flows of a bucket that have jobs or settings of their own, in no order unless it is asked for",
		Description: "Flows that come or go meanwhile may be missing; a page may have more or fewer than `limit`. With `failing` and with `q` it may be empty and have " +
			"a `next` all the same.",
	}

	ListGroups = &Operation[GroupQuery, *GroupList]{
		ID: "listGroups", Method: "GET", Path: "/v1/buckets/{bucket}/groups", Roles: []apikey.Role{apikey.RoleRead}, Faults: partFaults,
		Answer:      "A page of the list.",
		Commands:    []string{"group list"},
		Summary:     "List the groups of a bucket that have jobs or settings of their own, in no order",
		Description: "Groups that come or go meanwhile may be missing; a page may have more or fewer than `limit`.",
	}

	ReleaseFlow = &Operation[FlowName, *opsview.Flow]{
		ID: "releaseFlow", Method: "POST", Path: "/v1/buckets/{bucket}/flow/release", Roles: []apikey.Role{apikey.RoleOperate}, Faults: partFaults,
		Commands: []string{"flow release"},
		Summary:  "End a hold or an open circuit breaker of one flow",
		Description: `Forgets its adaptive rate too. Waiting jobs go on at once, at the flow's pace.
Answers that come later may slow or hold it again. Safe to repeat.`,
	}

	EnableFlow = &Operation[FlowEnable, *opsview.EnabledFlow]{
		ID: "enableFlow", Method: "POST", Path: "/v1/buckets/{bucket}/flow/enable", Roles: []apikey.Role{apikey.RoleOperate}, Faults: partFaults,
		Commands: []string{"flow enable"},
		Summary:  "Let a disabled flow run again",
		Description: `A flow is disabled when its receiver answers that it is gone (410), or has not worked for ` + "`breaker.disable_after`" + `.
It then sends nothing, new jobs get 409 (flow-disabled), and those that waited are dead letters with the cause
` + "`flow-disabled`" + `. Safe to repeat.`,
	}

	RemoveFlow = &Operation[FlowRemove, *opsview.RemovedFlow]{
		ID: "removeFlow", Method: "DELETE", Path: "/v1/buckets/{bucket}/flow/all", Roles: []apikey.Role{apikey.RoleAdmin}, Faults: partFaults,
		InParts:  true,
		Answer:   "What this request dropped, or counted. With `next` there is more.",
		Commands: []string{"flow remove"},
		Summary:  "Drop all that is kept of one flow, for good",
		Description: `Its waiting jobs, its dead letters, its kept results, and then its settings, its pause, its hold or open circuit breaker, and that it is
disabled. Jobs in flight are not touched, and jobs that come meanwhile may stay. A request works for about two seconds: repeat it with ` + "`cursor`" + `
until the answer has no ` + "`next`" + `. A removal that was interrupted may be begun again without a cursor.`,
	}
)
