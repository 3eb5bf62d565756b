package shaper

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// quotasText is what the scripts read: "count microseconds;" for each.
func quotasText(quotas []admission.Rate) string {
	var text strings.Builder
	for _, quota := range quotas {
		fmt.Fprintf(&text, "%d %d;", quota.Count, quota.Per.Microseconds())
	}
	return text.String()
}

// parseOwnDelivery reads what claim.lua tells of a flow's settings: their text after
// the first line. It returns nil of a flow that has nothing for its deliveries. The
// error repeats nothing of the text.
func parseOwnDelivery(text string) (*OwnDelivery, error) {
	var own OwnFlow
	if err := readOwnLines(&own, strings.Split("\n"+text, "\n")); err != nil {
		return nil, err
	}
	if own.URL == "" && len(own.Headers) == 0 && len(own.Secrets) == 0 {
		return nil, nil
	}
	return &OwnDelivery{URL: own.URL, Headers: own.Headers, Secrets: own.Secrets}, nil
}

// Places of the settings in what control_flow.lua is given: numbers first, then lines.
var flowFields = map[FlowSetting]int{
	FlowRate: 0, FlowBurst: 2, FlowCapacity: 3, FlowMaxInFlight: 4, FlowWeight: 5,
	FlowURL: 6, FlowHeaders: 7, FlowSecrets: 8,
}

const (
	flowNumbers  = 6 // rate_count, rate_per, burst, capacity, max_in_flight, weight
	flowFieldSum = 9
	flowUnset    = "-"
)

func ownNumbers(o *OwnFlow) map[FlowSetting]**int64 {
	return map[FlowSetting]**int64{
		FlowBurst: &o.Burst, FlowCapacity: &o.Capacity, FlowMaxInFlight: &o.MaxInFlight, FlowWeight: &o.Weight,
	}
}

// pauseNote is who paused a flow, and why.
type pauseNote struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

func readFlowPause(since int64, note string) *Pause {
	if since == 0 {
		return nil
	}
	var n pauseNote
	_ = json.Unmarshal([]byte(note), &n) // what is not there is not known
	return readPause(since, n.By, n.Reason)
}

// parseOwnFlow reads the text of the hash flow_settings, see lua/flow.lua and
// control_flow.lua.
func parseOwnFlow(text string) (OwnFlow, error) {
	var own OwnFlow
	if text == "" {
		return own, nil
	}
	lines := strings.Split(text, "\n")
	values := strings.Fields(lines[0])
	if len(values) != flowNumbers+1 {
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
		*to = number(flowFields[setting])
	}
	if since := number(flowNumbers); since != nil {
		note := ""
		if len(lines) > 1 {
			note = lines[1]
		}
		own.Pause = readFlowPause(*since, note)
	}
	return own, readOwnLines(&own, lines)
}

// readOwnLines reads the lines of the text that are for programs: all but the first two. Its
// error repeats nothing of them, as they hold credentials.
func readOwnLines(o *OwnFlow, lines []string) error {
	for setting, to := range map[FlowSetting]any{FlowURL: &o.URL, FlowHeaders: &o.Headers, FlowSecrets: &o.Secrets} {
		at := 2 + flowFields[setting] - flowNumbers
		if at >= len(lines) || lines[at] == flowUnset {
			continue
		}
		if json.Unmarshal([]byte(lines[at]), to) != nil {
			return fmt.Errorf("shaper: the %s of a flow in Redis are not ours", setting)
		}
	}
	return nil
}

// flowState is what Redis knows of a flow; see lua/flow.lua.
type flowState struct{ unfinished, scheduled, inFlight int64 }

func (s flowState) waiting() int64 { return max(s.unfinished+s.scheduled-s.inFlight, 0) }

// parseFlowState reads the text of the hash flows: nothing of what is not ours.
func parseFlowState(text string) flowState {
	var s flowState
	values := strings.Fields(text)
	if len(values) != 8 {
		return s
	}
	for i, to := range []*int64{&s.unfinished, &s.scheduled, &s.inFlight} {
		*to, _ = strconv.ParseInt(values[4+i], 10, 64)
	}
	return s
}

// Levels of a bucket, as the scripts have them.
const (
	levelsNone   = 0 // it has the flow "" only
	levelsFlows  = 1
	levelsGroups = 2 // and its flows are in groups
)

// flowPath is the one name that a flow has in Redis, in a bucket with groups: the length
// of its group's name, a colon, the group's name and its own. See lua/flow.lua.
func flowPath(group, flow string) string { return strconv.Itoa(len(group)) + ":" + group + flow }

// splitPath undoes flowPath.
func splitPath(path string) (group, flow string, ok bool) {
	digits, rest, found := strings.Cut(path, ":")
	length, err := strconv.Atoi(digits)
	if !found || err != nil || length < 0 || length > len(rest) {
		return "", path, false
	}
	return rest[:length], rest[length:], true
}

// pathOf is the name in Redis of a flow of a group, in a bucket that is parted so.
func pathOf(levels int, group, flow string) string {
	switch levels {
	case levelsNone:
		return ""
	case levelsFlows:
		return flow
	default:
		return flowPath(group, flow)
	}
}

// instantOf is a Redis time, zero for 0.
func instantOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

func readPause(since int64, by, reason string) *Pause {
	if since == 0 {
		return nil
	}
	return &Pause{Since: time.UnixMicro(since), By: by, Reason: reason}
}

// readQuotas reads what quotasText wrote; what nobody can read is left out.
func readQuotas(text string) []admission.Rate {
	var quotas []admission.Rate
	for one := range strings.SplitSeq(text, ";") {
		var count, micros int64
		if n, _ := fmt.Sscan(one, &count, &micros); n == 2 {
			quotas = append(quotas, admission.Rate{Count: count, Per: time.Duration(micros) * time.Microsecond, Unit: admission.UnitRequests})
		}
	}
	return quotas
}
