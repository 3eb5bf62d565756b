package operator

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// budgetsInRun is how many flows or groups a run of inspect_budgets.lua reads: as many as a claim of a bucket with budgets names.
const budgetsInRun = 32

// addAllowances adds to flows or groups what is charged to their budgets, and how many departures count for their quotas. One round trip. A part with
// a charge, or with a departure that counts, becomes known.
func (o *Operator) addAllowances(ctx context.Context, t target, infos []seen) error {
	var calls []lua.Call
	for first := 0; first < len(infos); first += budgetsInRun {
		args, names := []any{0}, []string{}
		for _, info := range infos[first:min(first+budgetsInRun, len(infos))] {
			args, names = append(args, info.name), append(names, info.name)
		}
		flows, groups := names, []string(nil)
		if t.what == targetGroup {
			args[0], flows, groups = 1, nil, names
		}
		calls = append(calls, lua.Call{Script: lua.InspectBudgets, Keys: t.keys.OfGroups(lua.InspectBudgets, flows, groups), Args: args})
	}
	next := infos
	for n, result := range lua.RunAll(ctx, o.store.Redis, calls) {
		if result.Err != nil {
			return fmt.Errorf("bucket %q: read the budgets and quotas of its flows: %w", t.bucket, result.Err)
		}
		r := lua.NewReader(result.Reply)
		_ = r.Int() // the server's time: no budget or quota is reported as free earlier
		for range calls[n].Args[1:] {
			next[0].Budgets = codec.ReadBudgetUse(r.Text())
			next[0].Quotas = codec.ReadQuotaUse(r.Text())
			for _, use := range next[0].Budgets {
				next[0].Known = next[0].Known || use.Charged > 0 || use.Open > 0
			}
			for _, use := range next[0].Quotas {
				next[0].Known = next[0].Known || use.Used > 0
			}
			next = next[1:]
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("bucket %q: script inspect_budgets: %w", t.bucket, err)
		}
	}
	return nil
}
