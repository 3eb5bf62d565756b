package httpapi

import (
	"encoding/json"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
)

// PoolName names a pool.
type PoolName struct {
	Pool string `json:"pool" in:"path"`
}

// PoolList lists the pools of the configuration in its order, then the pools that are only in Redis.
type PoolList struct {
	Pools []opsview.PoolView `json:"pools"`
}

// PoolSettings changes settings of a pool.
type PoolSettings struct {
	PoolName
	Settings json.RawMessage `json:"-" in:"body" schema:"PoolPatch"`
}

// PoolResets are settings of a pool to reset.
type PoolResets struct {
	PoolName

	// One setting to reset; may be repeated. Without any, all are reset.
	Settings []string `json:"setting" in:"query"`
}

// PoolReset is one setting of a pool to reset.
type PoolReset struct {
	PoolName
	Setting string `json:"setting" in:"path" schema:"PoolSetting"`
}

// The operations of pools.
var (
	ListPools = &Operation[struct{}, *PoolList]{
		ID: "listPools", Method: "GET", Path: "/v1/pools", Roles: []apikey.Role{apikey.RoleRead},
		Answer:   "First the configured ones in the order of the configuration, then the orphaned ones.",
		Commands: []string{"pool list"},
		Summary:  "List all pools, also those that left the configuration",
	}

	ShowPool = &Operation[PoolName, *opsview.PoolView]{
		ID: "showPool", Method: "GET", Path: "/v1/pools/{pool}", Roles: []apikey.Role{apikey.RoleRead},
		Commands: []string{"pool show"},
		Summary:  "Show a pool with its buckets",
	}

	SetPool = &Operation[PoolSettings, *opsview.PoolView]{
		ID: "setPool", Method: "PATCH", Path: "/v1/pools/{pool}", Roles: []apikey.Role{apikey.RoleAdmin}, AllBuckets: true,
		Commands: []string{"pool set"},
		Summary:  "Change settings of a pool for all processes at once",
		Description: `Needs a key for all buckets. The given settings override all configurations, across restarts, until DELETE .../overrides. A
new rate holds from the next slot on. After 503 the outcome is unknown, and it is safe to send the change again.`,
	}

	ReleasePool = &Operation[PoolName, *opsview.PoolView]{
		ID: "releasePool", Method: "POST", Path: "/v1/pools/{pool}/release", Roles: []apikey.Role{apikey.RoleOperate}, AllBuckets: true,
		Commands: []string{"pool release"},
		Summary:  "End a hold or an open circuit breaker of a pool",
		Description: `Needs a key for all buckets. Forgets its adaptive rate too. Waiting jobs go on at once, at the pool's pace.
Answers that come later may slow or hold it again. Safe to repeat.`,
	}

	ResetPool = &Operation[PoolResets, *opsview.PoolView]{
		ID: "resetPool", Method: "DELETE", Path: "/v1/pools/{pool}/overrides", Roles: []apikey.Role{apikey.RoleAdmin}, AllBuckets: true,
		Commands:    []string{"pool reset"},
		Summary:     "Remove every override of a pool",
		Description: "Needs a key for all buckets. Safe to repeat, also if nothing was changed.",
	}

	ResetPoolSetting = &Operation[PoolReset, *opsview.PoolView]{
		ID: "resetPoolSetting", Method: "DELETE", Path: "/v1/pools/{pool}/overrides/{setting}", Roles: []apikey.Role{apikey.RoleAdmin}, AllBuckets: true,
		Summary:     "Remove the override of one setting",
		Description: "Needs a key for all buckets.",
	}
)
