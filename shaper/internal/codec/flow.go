package codec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// QuotasText is what the scripts read: "count microseconds;" for each.
func QuotasText(quotas []admission.Rate) string {
	var text strings.Builder
	for _, quota := range quotas {
		fmt.Fprintf(&text, "%d %d;", quota.Count, quota.Per.Microseconds())
	}
	return text.String()
}

// BatchText is what the scripts read: see lua/lib/batch.lua. It is "" without batches.
func BatchText(s shaper.BatchSettings) string {
	if !s.Has() {
		return ""
	}
	return fmt.Sprint(s.MaxSize, " ", s.MaxBytes, " ", s.MaxWait.Microseconds())
}

// ParseOwnDelivery reads what claim.lua tells of a flow's settings: their text after
// the first line. It returns nil of a flow that has nothing for its deliveries. The
// error repeats nothing of the text.
func ParseOwnDelivery(text string) (*shaper.OwnDelivery, error) {
	var own shaper.OwnFlow
	if err := ReadOwnLines(&own, strings.Split("\n"+text, "\n")); err != nil {
		return nil, err
	}
	if own.URL == "" && len(own.Headers) == 0 && len(own.Secrets) == 0 {
		return nil, nil
	}
	return &shaper.OwnDelivery{URL: own.URL, Headers: own.Headers, Secrets: own.Secrets}, nil
}

// FlowFields are the places of the settings in what control_flow.lua is given: numbers first, then lines.
var FlowFields = map[shaper.FlowSetting]int{
	shaper.FlowRate: 0, shaper.FlowBurst: 2, shaper.FlowCapacity: 3, shaper.FlowMaxInFlight: 4, shaper.FlowWeight: 5,
	shaper.FlowURL: 6, shaper.FlowHeaders: 7, shaper.FlowSecrets: 8,
}

const (
	FlowNumbers  = 6 // rate_count, rate_per, burst, capacity, max_in_flight, weight
	FlowFieldSum = 9
	FlowUnset    = "-"

	FlowListChange = "~" // in front of a change of a list: see own_settings.change_list
)

func ownNumbers(o *shaper.OwnFlow) map[shaper.FlowSetting]**int64 {
	return map[shaper.FlowSetting]**int64{
		shaper.FlowBurst: &o.Burst, shaper.FlowCapacity: &o.Capacity, shaper.FlowMaxInFlight: &o.MaxInFlight, shaper.FlowWeight: &o.Weight,
	}
}

// PauseNote is who paused a flow, and why.
type PauseNote struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

func ReadFlowPause(since int64, note string) *shaper.Pause {
	if since == 0 {
		return nil
	}
	var n PauseNote
	_ = json.Unmarshal([]byte(note), &n) // what is not there is not known
	return ReadPause(since, n.By, n.Reason)
}

// ParseOwnFlow reads the text of the hash flow_settings, see lua/flow.lua and
// control_flow.lua.
func ParseOwnFlow(text string) (shaper.OwnFlow, error) {
	var own shaper.OwnFlow
	if text == "" {
		return own, nil
	}
	lines := strings.Split(text, "\n")
	values := strings.Fields(lines[0])
	if len(values) != FlowNumbers+1 && len(values) != FlowNumbers+2 {
		return own, fmt.Errorf("shaper: the settings of a flow in Redis are not ours: %q", lines[0])
	}
	number := func(at int) *int64 {
		if n, err := strconv.ParseInt(values[at], 10, 64); err == nil {
			return &n
		}
		return nil
	}
	if count, per := number(0), number(1); count != nil && per != nil {
		own.Rate = admission.Rate{Count: *count, Per: time.Duration(*per) * time.Microsecond, Unit: admission.UnitRequests}
	}
	for setting, to := range ownNumbers(&own) {
		*to = number(FlowFields[setting])
	}
	if since := number(FlowNumbers); since != nil {
		note := ""
		if len(lines) > 1 {
			note = lines[1]
		}
		own.Pause = ReadFlowPause(*since, note)
	}
	if len(values) > FlowNumbers+1 {
		own.Disabled = ReadDisabled(values[FlowNumbers+1])
	}
	return own, ReadOwnLines(&own, lines)
}

// ReadDisabled reads when and why a flow was disabled: see lua/lib/own_settings.lua. It returns nil of one that is not.
func ReadDisabled(text string) *shaper.Disabled {
	micros, reason, _ := strings.Cut(text, "/")
	since, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return nil
	}
	if reason == noReason {
		reason = ""
	}
	return &shaper.Disabled{Since: time.UnixMicro(since), Reason: reason}
}

// ReadOwnLines reads the lines of the text that are for programs: all but the first two. Its
// error repeats nothing of them, as they hold credentials.
func ReadOwnLines(o *shaper.OwnFlow, lines []string) error {
	for setting, to := range map[shaper.FlowSetting]any{shaper.FlowURL: &o.URL, shaper.FlowHeaders: &o.Headers, shaper.FlowSecrets: &o.Secrets} {
		at := 2 + FlowFields[setting] - FlowNumbers
		if at >= len(lines) || lines[at] == FlowUnset {
			continue
		}
		if json.Unmarshal([]byte(lines[at]), to) != nil {
			return fmt.Errorf("shaper: the %s of a flow in Redis are not ours", setting)
		}
	}
	return nil
}

// FlowState is what Redis knows of a flow; see lua/flow.lua.
type FlowState struct {
	Unfinished, Scheduled, InFlight int64

	Downstream string // for ParseDownstream; "" without one
}

func (s FlowState) Waiting() int64 { return max(s.Unfinished+s.Scheduled-s.InFlight, 0) }

// ParseFlowState reads the text of the hash flows: nothing of what is not ours.
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
	LevelsNone   = 0 // it has the flow "" only
	LevelsFlows  = 1
	LevelsGroups = 2 // and its flows are in groups
)

// FlowPath is the one name that a flow has in Redis, in a bucket with groups: the length
// of its group's name, a colon, the group's name and its own. See lua/flow.lua.
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

// PathOf is the name in Redis of a flow of a group, in a bucket that is parted so.
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

// ReadQuotas reads what quotasText wrote; what nobody can read is left out.
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

// ReadQuotaUse reads what lua/lib/allowance.lua says of quotas.
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
