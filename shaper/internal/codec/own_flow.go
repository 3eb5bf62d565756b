package codec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
)

// The own settings of a flow are a text in Redis: numbers in the first line, the note of its pause in the second, then a line of JSON for each
// other setting. Scripts read the last two of these lines, budgets and quotas. Of the others they only test whether they are set, and list what changed. See lua/lib/own_settings.lua and lua/lib/flow.lua.
const (
	ownNumbers   = 6 // the number of fields in the first line; settings in lines of their own follow
	ownFirstLine = 2 // the index of the first of these lines

	FlowUnset      = "-" // a setting that the flow does not have
	FlowListChange = "~" // prefix of a change of a list: see own_settings.change_list
)

// ownSetting is a setting of one flow, described by its tags. A rate has two fields.
type ownSetting struct {
	*setting.Key
	place, size int
}

var ownSettings = func() (list []ownSetting) {
	for _, k := range setting.Values(reflect.TypeFor[shaper.OwnFlow]()) {
		s := ownSetting{Key: k, size: 1}
		s.place, _ = strconv.Atoi(k.Redis) // a test holds that they follow each other
		if k.Type == reflect.TypeFor[admission.Rate]() {
			s.size = 2
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b ownSetting) int { return a.place - b.place })
	return list
}()

// OwnPlace returns a pointer to the field of a setting in own, and its index in [OwnFields]. The pointer is nil if there is no such setting.
func OwnPlace(own *shaper.OwnFlow, name shaper.FlowSetting) (to any, place int) {
	for _, s := range ownSettings {
		if s.Path == string(name) {
			return s.in(own).Addr().Interface(), s.place
		}
	}
	return nil, 0
}

// OwnFields returns the given settings as control_flow.lua takes them: "" leaves a setting as it is, and a zero value removes it.
func OwnFields(own *shaper.OwnFlow, given map[shaper.FlowSetting]bool) (fields []string) {
	for _, s := range ownSettings {
		values := make([]string, s.size)
		if given[shaper.FlowSetting(s.Path)] {
			values = s.write(s.in(own))
		}
		fields = append(fields, values...)
	}
	return fields
}

func (s ownSetting) in(own *shaper.OwnFlow) reflect.Value {
	v, _ := s.In(reflect.ValueOf(own)) // there is no table in it that need not be there
	return v
}

func (s ownSetting) write(v reflect.Value) []string {
	if v.IsZero() {
		return slices.Repeat([]string{FlowUnset}, s.size)
	}
	if rate, ok := v.Interface().(admission.Rate); ok {
		return []string{strconv.FormatInt(rate.Count, 10), strconv.FormatInt(rate.Per.Microseconds(), 10)}
	}
	if budgets, ok := v.Interface().(shaper.Budgets); ok {
		return []string{strconv.Quote(BudgetsText(budgets))}
	}
	if quotas, ok := v.Interface().(shaper.Quotas); ok {
		return []string{"<" + QuotasText(quotas) + ">"}
	}
	text, _ := json.Marshal(v.Interface()) // numbers, text and maps of it always marshal; JSON escapes line feeds
	return []string{string(text)}
}

// PauseNote is the author of a flow's pause, and the reason.
type PauseNote struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

func ReadFlowPause(since int64, note string) *shaper.Pause {
	if since == 0 {
		return nil
	}
	var n PauseNote
	_ = json.Unmarshal([]byte(note), &n) // a missing field is not known
	return ReadPause(since, n.By, n.Reason)
}

// ParseOwnFlow reads the text of the hash flow_settings, see lua/lib/flow.lua and
// control_flow.lua.
func ParseOwnFlow(text string) (shaper.OwnFlow, error) {
	var own shaper.OwnFlow
	if text == "" {
		return own, nil
	}
	lines := strings.Split(text, "\n")
	values := strings.Fields(lines[0])
	if len(values) != ownNumbers+1 && len(values) != ownNumbers+2 {
		return own, fmt.Errorf("shaper: the settings of a flow in Redis are not ours: %q", lines[0])
	}
	number := func(at int) *int64 {
		if n, err := strconv.ParseInt(values[at], 10, 64); err == nil {
			return &n
		}
		return nil
	}
	for _, s := range ownSettings {
		switch to := s.in(&own).Addr().Interface().(type) {
		case *admission.Rate:
			if count, per := number(s.place), number(s.place+1); count != nil && per != nil {
				*to = admission.Rate{Count: *count, Per: time.Duration(*per) * time.Microsecond, Unit: admission.UnitRequests}
			}
		case **int64:
			*to = number(s.place)
		}
	}
	if since := number(ownNumbers); since != nil {
		note := ""
		if len(lines) > 1 {
			note = lines[1]
		}
		own.Pause = ReadFlowPause(*since, note)
	}
	if len(values) > ownNumbers+1 {
		own.Disabled = ReadDisabled(values[ownNumbers+1])
	}
	return own, readOwnLines(&own, lines)
}

// ReadDisabled parses when and why a flow was disabled: see lua/lib/own_settings.lua. It returns nil if the flow is enabled.
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

// readOwnLines reads the lines of the text that are for programs: all but the first two. Its
// error repeats nothing of them, as they hold credentials.
func readOwnLines(own *shaper.OwnFlow, lines []string) error {
	for _, s := range ownSettings {
		at := ownFirstLine + s.place - ownNumbers
		if at < ownFirstLine || at >= len(lines) || lines[at] == FlowUnset {
			continue
		}
		switch to := s.in(own).Addr().Interface().(type) {
		case *shaper.Budgets:
			*to = append(shaper.Budgets{}, ReadBudgets(strings.Trim(lines[at], `"`))...)
		case *shaper.Quotas:
			*to = append(shaper.Quotas{}, ReadQuotas(strings.Trim(lines[at], "<>"))...)
		default:
			if json.Unmarshal([]byte(lines[at]), to) != nil {
				return fmt.Errorf("shaper: the %s of a flow in Redis are not ours", s.Path)
			}
		}
	}
	return nil
}

// ParseOwnDelivery parses the settings of a flow that claim.lua returns: their text after the first line. It returns nil if the flow has no
// settings for deliveries. The error contains nothing of the text.
func ParseOwnDelivery(text string) (*shaper.OwnDelivery, error) {
	var own shaper.OwnFlow
	if err := readOwnLines(&own, strings.Split("\n"+text, "\n")); err != nil {
		return nil, err
	}
	if own.URL == "" && len(own.Headers) == 0 && len(own.Secrets) == 0 {
		return nil, nil
	}
	return &shaper.OwnDelivery{URL: own.URL, Headers: own.Headers, Secrets: own.Secrets}, nil
}
