package httpapi

import (
	"encoding/json"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// LimitName names a limit.
type LimitName struct {
	Limit string `json:"limit" in:"path"`
}

// LimitPatch changes a limit.
type LimitPatch struct {
	LimitName
	Patch json.RawMessage `json:"-" in:"body" schema:"LimitPatch"`
}

// LimitList are the configured limits in their order.
type LimitList struct {
	Limits []*LimitView `json:"limits"`
}

// LimitView is a limit. The response to a change has neither configured nor override.
type LimitView struct {
	Name string `json:"name"`

	// In the configuration of this process. Not in the response to a change.
	Configured *admission.Limit `json:"configured,omitempty"`
	InForce    *admission.Limit `json:"in_force"`

	// The override by an operator. Absent without one.
	Override *admission.Patch `json:"override,omitempty"`
}

// LimitRefusals lists the callers that a limit refuses.
type LimitRefusals struct {
	Limit string `json:"limit"`

	// A caller is an API key (key:NAME), an address (addr:ADDRESS), or the key that the limit counts by.
	Callers []fleet.Refusals `json:"callers"`

	// How often others were refused.
	Others int64 `json:"others"`
}

// The operations of limits.
var (
	ListLimits = &Operation[struct{}, *LimitList]{
		ID: "listLimits", Method: "GET", Path: "/v1/limits", Roles: []apikey.Role{apikey.RoleRead},
		Commands: []string{"limit list"},
		Answer:   "In the order of the configuration.",
		Summary:  "List the limits, as configured and in force",
	}

	ShowLimit = &Operation[LimitName, *LimitView]{
		ID: "showLimit", Method: "GET", Path: "/v1/limits/{limit}", Roles: []apikey.Role{apikey.RoleRead},
		Commands: []string{"limit show"},
		Answer:   "The limit, as configured and in force.",
		Summary:  "Show a limit",
	}

	ShowRefusals = &Operation[LimitName, *LimitRefusals]{
		ID: "showRefusals", AllBuckets: true, Method: "GET", Path: "/v1/limits/{limit}/refusals", Roles: []apikey.Role{apikey.RoleRead}, Faults: []code{codeUnknownLimit},
		Commands: []string{"limit refusals"},
		Answer:   "The callers, those that were refused most first.",
		Summary:  "The callers that a limit refused most in the last ten minutes",
		Description: `Refusals in buckets and in checks of the limit alone, by all processes, known within five seconds. Processes count in memory: each distinguishes
the first 200 callers of a minute, and reports 20. All other refusals are counted in ` + "`others`" + `. Needs a key for all buckets.`,
	}

	ChangeLimit = &Operation[LimitPatch, *LimitView]{
		ID: "changeLimit", AllBuckets: true, Method: "PATCH", Path: "/v1/limits/{limit}", Roles: []apikey.Role{apikey.RoleAdmin},
		Commands: []string{"limit set"},
		Answer:   "The limit in force, everywhere.",
		Summary:  "Change a limit for all processes at once",
		Description: `The given settings override the configuration until DELETE .../override. Settings of an earlier change stay.
The limit keeps its state: a caller that has spent more than a lowered limit allows exceeds it at once. If only
` + "`limit`" + ` is changed, a token bucket's burst is scaled alike. The limit of the check is changed first, then the limit
of every bucket that names it. 503 says how far the change came; it is safe to send it again.`,
	}

	ResetLimit = &Operation[LimitName, *LimitView]{
		ID: "resetLimit", AllBuckets: true, Method: "DELETE", Path: "/v1/limits/{limit}/override", Roles: []apikey.Role{apikey.RoleAdmin},
		Commands:    []string{"limit reset"},
		Answer:      "The limit in force, everywhere.",
		Summary:     "Remove the override of a limit",
		Description: "Safe to repeat, also if nothing was changed.",
	}
)
