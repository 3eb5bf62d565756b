package shaper

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/admission"
)

// FlowSetting is a setting that one flow may have of its own, named as in the
// configuration.
type FlowSetting string

// The settings of one flow.
const (
	FlowRate        FlowSetting = "rate"
	FlowBurst       FlowSetting = "burst"
	FlowCapacity    FlowSetting = "capacity"      // 0: the bucket's bound only
	FlowMaxInFlight FlowSetting = "max_in_flight" // 0: the bucket's bound only
	FlowWeight      FlowSetting = "weight"        // departures in each turn

	FlowURL     FlowSetting = "url"     // where its jobs go that name none
	FlowHeaders FlowSetting = "headers" // sent with its deliveries
	FlowSecrets FlowSetting = "secrets" // that sign its deliveries
)

// FlowSettingNames lists them all, in their order.
func FlowSettingNames() []FlowSetting {
	return []FlowSetting{FlowRate, FlowBurst, FlowCapacity, FlowMaxInFlight, FlowWeight, FlowURL, FlowHeaders, FlowSecrets}
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

// RedactedPath stands for the path and the query of a flow's URL where the URL is shown. No
// flow is given a URL that ends in it.
const RedactedPath = "/***"

const (
	maxFlowText    = 2048 // bytes of a URL, of the value of a header, of a secret
	maxFlowHeaders = 32
	maxFlowSecrets = 8
)

// OwnFlow are the settings that one flow has of its own, over those of all flows of
// its bucket. What is zero or nil is as for all.
type OwnFlow struct {
	Rate        admission.Rate
	Burst       *int64
	Capacity    *int64
	MaxInFlight *int64
	Weight      *int64

	URL     string
	Headers map[string]string
	Secrets []string

	Pause *Pause // nil if the flow runs
}

// IsZero reports whether the flow has no settings of its own; a pause is none.
func (o *OwnFlow) IsZero() bool {
	return o.Rate.IsZero() && o.Burst == nil && o.Capacity == nil && o.MaxInFlight == nil && o.Weight == nil &&
		o.URL == "" && o.Headers == nil && o.Secrets == nil
}

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

// FlowPatch is a change of the settings of one flow. The zero value changes none.
type FlowPatch struct {
	fields [flowFieldSum]string // as control_flow.lua takes them
	given  map[FlowSetting]bool
}

// IsZero reports whether the patch changes nothing.
func (p *FlowPatch) IsZero() bool { return len(p.given) == 0 }

func (p *FlowPatch) set(setting FlowSetting, values ...string) {
	if p.given == nil {
		p.given = map[FlowSetting]bool{}
	}
	p.given[setting] = true
	copy(p.fields[flowFields[setting]:], values)
}

// Put adds a setting to the patch, its value as in the configuration; not headers and
// secrets. The error begins with the setting.
func (p *FlowPatch) Put(setting FlowSetting, value string) error {
	switch setting {
	case FlowRate:
		rate, err := admission.ParseRate(value)
		if err != nil && rate.Count == 0 && rate.Per > 0 {
			return fmt.Errorf("%s: %q would mean that the flow is paused: pause it, so that all see why", setting, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", setting, err)
		}
		if rate.Unit != admission.UnitRequests {
			return fmt.Errorf("%s: %q: only requests are paced in this version, not %s", setting, value, rate.Unit)
		}
		p.set(setting, strconv.FormatInt(rate.Count, 10), strconv.FormatInt(rate.Per.Microseconds(), 10))
	case FlowBurst, FlowCapacity, FlowMaxInFlight, FlowWeight:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %q is not a whole number", setting, value)
		}
		bounds := map[FlowSetting][2]int64{
			FlowBurst: {1, MaxBurst}, FlowCapacity: {0, MaxCapacity}, FlowMaxInFlight: {0, MaxCapacity}, FlowWeight: {1, MaxWeight},
		}[setting]
		if n < bounds[0] || n > bounds[1] {
			return fmt.Errorf("%s: %d: want %d to %d", setting, n, bounds[0], bounds[1])
		}
		p.set(setting, strconv.FormatInt(n, 10))
	case FlowURL:
		u, err := url.Parse(value)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || len(value) > maxFlowText || !utf8.ValidString(value) {
			return fmt.Errorf("%s: want an absolute http or https URL of at most %d bytes of UTF-8", setting, maxFlowText)
		}
		if strings.HasSuffix(value, RedactedPath) {
			return fmt.Errorf("%s: is redacted: give the whole URL, or leave it out to keep it", setting)
		}
		p.set(setting, jsonLine(value))
	default:
		return unknownFlowSetting(setting)
	}
	return nil
}

// PutHeaders has the flow's deliveries carry these headers. What a worker kind demands of
// them is for [OperatorConfig.CheckFlow] to say.
func (p *FlowPatch) PutHeaders(headers map[string]string) error {
	if len(headers) > maxFlowHeaders {
		return fmt.Errorf("%s: %d: want at most %d", FlowHeaders, len(headers), maxFlowHeaders)
	}
	for name, value := range headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || len(value) > maxFlowText || !utf8.ValidString(value) {
			return fmt.Errorf("%s: %q: want a valid name, and a value of at most %d bytes of UTF-8", FlowHeaders, name, maxFlowText)
		}
	}
	p.set(FlowHeaders, jsonLine(headers))
	return nil
}

// PutSecrets has the flow's deliveries signed with these secrets.
func (p *FlowPatch) PutSecrets(secrets []string) error {
	if len(secrets) > maxFlowSecrets {
		return fmt.Errorf("%s: %d: want at most %d", FlowSecrets, len(secrets), maxFlowSecrets)
	}
	for i, secret := range secrets {
		if secret == "" || len(secret) > maxFlowText || !utf8.ValidString(secret) {
			return fmt.Errorf("%s: number %d: want text of 1 to %d bytes", FlowSecrets, i+1, maxFlowText)
		}
	}
	p.set(FlowSecrets, jsonLine(secrets))
	return nil
}

// Clear has a setting be as for all flows again.
func (p *FlowPatch) Clear(settings ...FlowSetting) error {
	for _, setting := range settings {
		if _, ok := flowFields[setting]; !ok {
			return unknownFlowSetting(setting)
		}
		values := []string{flowUnset}
		if setting == FlowRate {
			values = append(values, flowUnset)
		}
		p.set(setting, values...)
	}
	return nil
}

// delivery is what the patch gives a flow for its deliveries.
func (p *FlowPatch) delivery() *OwnDelivery {
	lines := []string{"", ""}
	for _, line := range p.fields[flowNumbers:] {
		lines = append(lines, cmp.Or(line, flowUnset))
	}
	var own OwnFlow
	_ = readOwnLines(&own, lines) // they are ours
	return &OwnDelivery{URL: own.URL, Headers: own.Headers, Secrets: own.Secrets}
}

// applied returns the rate and the burst of a flow with the patch; the rest is as before.
func (p *FlowPatch) applied(own OwnFlow) OwnFlow {
	numbers := make([]string, 0, flowNumbers+1)
	for _, value := range append(p.fields[:flowNumbers:flowNumbers], flowUnset) {
		numbers = append(numbers, cmp.Or(value, flowUnset))
	}
	changed, _ := parseOwnFlow(strings.Join(numbers, " "))
	if p.given[FlowRate] {
		own.Rate = changed.Rate
	}
	if p.given[FlowBurst] {
		own.Burst = changed.Burst
	}
	return own
}

// jsonLine is a value as one line of JSON: JSON escapes line feeds.
func jsonLine(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return flowUnset // text and maps of it always marshal
	}
	return string(text)
}

func unknownFlowSetting(setting FlowSetting) error {
	names := make([]string, 0, len(flowFields))
	for _, name := range FlowSettingNames() {
		names = append(names, string(name))
	}
	return fmt.Errorf("%s: is no setting of a flow: want %s", setting, strings.Join(names, ", "))
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
