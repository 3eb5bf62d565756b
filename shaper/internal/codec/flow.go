package codec

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// QuotasText returns quotas as the scripts read them: "count microseconds;" for each.
func QuotasText(quotas []admission.Rate) string {
	var text strings.Builder
	for _, quota := range quotas {
		fmt.Fprintf(&text, "%d %d;", quota.Count, quota.Per.Microseconds())
	}
	return text.String()
}

// BudgetsText returns budgets as the scripts read them: "unit amount microseconds;" for each.
func BudgetsText(budgets shaper.Budgets) string {
	var text strings.Builder
	for _, budget := range budgets {
		fmt.Fprintf(&text, "%s %d %d;", budget.Unit, budget.Count, budget.Per.Microseconds())
	}
	return text.String()
}

// ReadBudgets parses the text of BudgetsText; a budget that cannot be parsed is left out.
func ReadBudgets(text string) shaper.Budgets {
	var budgets shaper.Budgets
	for one := range strings.SplitSeq(text, ";") {
		var unit string
		var amount, micros int64
		if n, _ := fmt.Sscan(one, &unit, &amount, &micros); n == 3 {
			budgets = append(budgets, admission.Rate{Count: amount, Per: time.Duration(micros) * time.Microsecond, Unit: unit})
		}
	}
	return budgets
}

// ReadBudgetUse parses the state of budgets that lua/lib/allowance.lua returns.
func ReadBudgetUse(text string) []shaper.BudgetUse {
	var uses []shaper.BudgetUse
	for one := range strings.SplitSeq(text, ";") {
		var unit string
		var amount, micros, charged, open, frees int64
		if n, _ := fmt.Sscan(one, &unit, &amount, &micros, &charged, &open, &frees); n == 6 {
			budget := admission.Rate{Count: amount, Per: time.Duration(micros) * time.Microsecond, Unit: unit}
			uses = append(uses, shaper.BudgetUse{Budget: budget, Charged: charged, Open: open, Frees: InstantOf(frees)})
		}
	}
	return uses
}

// BatchText returns batch settings as the scripts read them: see lua/lib/batch.lua. It is "" without batches.
func BatchText(s shaper.BatchSettings) string {
	if !s.Has() {
		return ""
	}
	return fmt.Sprint(s.MaxSize, " ", s.MaxBytes, " ", s.MaxWait.Microseconds())
}

// FlowState is the state of a flow in Redis; see lua/lib/flow.lua.
type FlowState struct {
	Unfinished, Scheduled, InFlight int64

	Downstream string // for ParseDownstream; "" without one
}

func (s FlowState) Waiting() int64 { return max(s.Unfinished+s.Scheduled-s.InFlight, 0) }

// ParseFlowState parses a value of the hash flows. It returns the zero value for a text that it does not know.
func ParseFlowState(text string) FlowState {
	var s FlowState
	if said, found := strings.CutPrefix(text, "@"); found {
		s.Downstream, text, _ = strings.Cut(said, " ")
	}
	values := strings.Fields(text)
	if len(values) != 8 {
		return s
	}
	for i, to := range []*int64{&s.Unfinished, &s.Scheduled, &s.InFlight} {
		*to, _ = strconv.ParseInt(values[4+i], 10, 64)
	}
	return s
}

// Levels of a bucket, as the scripts have them.
const (
	LevelsNone   = lua.NoFlows // it has the flow "" only
	LevelsFlows  = lua.Flows
	LevelsGroups = lua.Groups // and its flows are in groups
)

// FlowPath returns the name of a flow in Redis, in a bucket with groups: the length of its group's name, a colon, the group's name and its own. See
// lua/lib/flow.lua.
func FlowPath(group, flow string) string { return strconv.Itoa(len(group)) + ":" + group + flow }

// SplitPath undoes flowPath.
func SplitPath(path string) (group, flow string, ok bool) {
	digits, rest, found := strings.Cut(path, ":")
	length, err := strconv.Atoi(digits)
	if !found || err != nil || length < 0 || length > len(rest) {
		return "", path, false
	}
	return rest[:length], rest[length:], true
}

// PathOf returns the name in Redis of a flow of a group, in a bucket of this number of levels.
func PathOf(levels int, group, flow string) string {
	switch levels {
	case LevelsNone:
		return ""
	case LevelsFlows:
		return flow
	default:
		return FlowPath(group, flow)
	}
}

// InstantOf is a Redis time, zero for 0.
func InstantOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

func ReadPause(since int64, by, reason string) *shaper.Pause {
	if since == 0 {
		return nil
	}
	return &shaper.Pause{Since: time.UnixMicro(since), By: by, Reason: reason}
}

// ReadQuotas parses the text of quotasText; a quota that cannot be parsed is left out.
func ReadQuotas(text string) []admission.Rate {
	var quotas []admission.Rate
	for one := range strings.SplitSeq(text, ";") {
		var count, micros int64
		if n, _ := fmt.Sscan(one, &count, &micros); n == 2 {
			quotas = append(quotas, admission.Rate{Count: count, Per: time.Duration(micros) * time.Microsecond, Unit: admission.UnitRequests})
		}
	}
	return quotas
}

// ReadQuotaUse parses the state of quotas that lua/lib/allowance.lua returns.
func ReadQuotaUse(text string) []shaper.QuotaUse {
	var uses []shaper.QuotaUse
	for one := range strings.SplitSeq(text, ";") {
		var count, micros, used, frees int64
		if n, _ := fmt.Sscan(one, &count, &micros, &used, &frees); n == 4 {
			quota := admission.Rate{Count: count, Per: time.Duration(micros) * time.Microsecond, Unit: admission.UnitRequests}
			uses = append(uses, shaper.QuotaUse{Quota: quota, Used: used, Frees: InstantOf(frees)})
		}
	}
	return uses
}
