package console

import (
	"net/http"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func poolsPage(v *visit) {
	list, err := call(v, httpapi.ListPools, struct{}{})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "pools", "Pools", list.Pools)
}

// changePool carries out an action on a pool.
func changePool(v *visit) {
	var after *opsview.PoolView
	var err error
	action := v.r.PathValue("action")
	switch action {
	case "release":
		after, err = call(v, httpapi.ReleasePool, httpapi.PoolName{Pool: v.r.PathValue("pool")})
	default:
		err = errNoAction
	}
	v.acted("../../pools", action, err, func() bool { return isChange(after.Changed) })
}

// limitRow is a limit, and whom it refuses; nil: the visitor's key may not know.
type limitRow struct {
	*httpapi.LimitView

	Refusals *httpapi.LimitRefusals
}

// refusingLimits is of how many limits a page asks whom they refuse: each asks the fleet.
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
