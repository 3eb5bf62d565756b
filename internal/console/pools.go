package console

import (
	"encoding/json"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// poolsContent holds all pools, and the actions that the visitor may take. Only a key for all buckets may change a pool.
type poolsContent struct {
	Pools           []opsview.PoolView
	Changed         []poolOverride
	MayRelease, Set bool
}

// poolOverride is a setting of a pool that an operator changed.
type poolOverride struct {
	Pool string
	opsview.Override
}

func poolsPage(v *visit) {
	list, err := call(v, httpapi.ListPools, struct{}{})
	if err != nil {
		v.fail(err)
		return
	}
	all := v.visitor.Key == nil || v.visitor.Key.MayUse(apikey.AllBuckets)
	page := poolsContent{Pools: list.Pools, MayRelease: all && v.may(apikey.RoleOperate), Set: all && v.may()}
	for i := range list.Pools {
		for _, override := range list.Pools[i].Overrides {
			page.Changed = append(page.Changed, poolOverride{list.Pools[i].Name, override})
		}
	}
	v.render(http.StatusOK, "pools", "Pools", &page)
}

// changePool carries out an action on a pool.
func changePool(v *visit) {
	var after *opsview.PoolView
	var err error
	action := v.r.PathValue("action")
	name := httpapi.PoolName{Pool: v.r.PathValue("pool")}
	switch action {
	case "release":
		after, err = call(v, httpapi.ReleasePool, name)
	case "set":
		var settings []byte
		if settings, err = json.Marshal(map[string]string{"rate": v.r.PostFormValue("rate")}); err == nil {
			after, err = call(v, httpapi.SetPool, httpapi.PoolSettings{PoolName: name, Settings: settings})
		}
	case "reset":
		after, err = call(v, httpapi.ResetPool, httpapi.PoolResets{PoolName: name})
	default:
		err = errNoAction
	}
	v.acted("../../pools", action, err, func() bool { return isChange(after.Changed) })
}

// limitRow is a limit with the callers that it refuses; nil: the visitor's key has no right to see them.
type limitRow struct {
	*httpapi.LimitView

	Refusals *httpapi.LimitRefusals
}

// refusingLimits bounds the limits whose refused callers a page requests: each request asks the fleet.
const refusingLimits = 50

func limitsPage(v *visit) {
	list, err := call(v, httpapi.ListLimits, struct{}{})
	if err != nil {
		v.fail(err)
		return
	}
	rows := make([]limitRow, len(list.Limits))
	for i, limit := range list.Limits {
		if rows[i].LimitView = limit; i >= refusingLimits {
			continue
		}
		if refusals, err := call(v, httpapi.ShowRefusals, httpapi.LimitName{Limit: limit.Name}); err == nil {
			rows[i].Refusals = refusals
		}
	}
	v.render(http.StatusOK, "limits", "Limits", rows)
}
