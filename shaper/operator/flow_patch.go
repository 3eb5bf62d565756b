package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

const (
	maxFlowText    = 2048 // bytes of a URL, of the value of a header, of a secret
	maxFlowHeaders = 32
	maxFlowSecrets = 8
)

// FlowPatch is a change of the settings of one flow. The zero value changes none.
type FlowPatch struct {
	fields [codec.FlowFieldSum]string // as control_flow.lua takes them
	given  map[shaper.FlowSetting]bool

	secrets secretsChange // given instead of a field
}

// IsZero reports whether the patch changes nothing.
func (p *FlowPatch) IsZero() bool { return len(p.given) == 0 }

func (p *FlowPatch) set(setting shaper.FlowSetting, values ...string) {
	if p.given == nil {
		p.given = map[shaper.FlowSetting]bool{}
	}
	p.given[setting] = true
	copy(p.fields[codec.FlowFields[setting]:], values)
}

// Put adds a setting to the patch, its value as in the configuration; not headers and
// secrets. The error begins with the setting.
func (p *FlowPatch) Put(setting shaper.FlowSetting, value string) error {
	switch setting {
	case shaper.FlowRate:
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
	case shaper.FlowBurst, shaper.FlowCapacity, shaper.FlowMaxInFlight, shaper.FlowWeight:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %q is not a whole number", setting, value)
		}
		bounds := map[shaper.FlowSetting][2]int64{
			shaper.FlowBurst: {1, shaper.MaxBurst}, shaper.FlowCapacity: {0, shaper.MaxCapacity}, shaper.FlowMaxInFlight: {0, shaper.MaxCapacity}, shaper.FlowWeight: {1, shaper.MaxWeight},
		}[setting]
		if n < bounds[0] || n > bounds[1] {
			return fmt.Errorf("%s: %d: want %d to %d", setting, n, bounds[0], bounds[1])
		}
		p.set(setting, strconv.FormatInt(n, 10))
	case shaper.FlowURL:
		u, err := url.Parse(value)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || len(value) > maxFlowText || !utf8.ValidString(value) {
			return fmt.Errorf("%s: want an absolute http or https URL of at most %d bytes of UTF-8", setting, maxFlowText)
		}
		if strings.HasSuffix(value, shaper.RedactedPath) {
			return fmt.Errorf("%s: is redacted: give the whole URL, or leave it out to keep it", setting)
		}
		p.set(setting, jsonLine(value))
	default:
		return unknownFlowSetting(setting)
	}
	return nil
}

// PutHeaders has the flow's deliveries carry these headers. What a worker kind demands of
// them is for [Config.CheckFlow] to say.
func (p *FlowPatch) PutHeaders(headers map[string]string) error {
	if len(headers) > maxFlowHeaders {
		return fmt.Errorf("%s: %d: want at most %d", shaper.FlowHeaders, len(headers), maxFlowHeaders)
	}
	for name, value := range headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || len(value) > maxFlowText || !utf8.ValidString(value) {
			return fmt.Errorf("%s: %q: want a valid name, and a value of at most %d bytes of UTF-8", shaper.FlowHeaders, name, maxFlowText)
		}
	}
	p.set(shaper.FlowHeaders, jsonLine(headers))
	return nil
}

// Clear has a setting be as for all flows again.
func (p *FlowPatch) Clear(settings ...shaper.FlowSetting) error {
	for _, setting := range settings {
		if _, ok := codec.FlowFields[setting]; !ok {
			return unknownFlowSetting(setting)
		}
		if setting == shaper.FlowSecrets && !p.secrets.isZero() {
			return errSecretsTwice
		}
		values := []string{codec.FlowUnset}
		if setting == shaper.FlowRate {
			values = append(values, codec.FlowUnset)
		}
		p.set(setting, values...)
	}
	return nil
}

// delivery is what the patch gives a flow for its deliveries.
func (p *FlowPatch) delivery() *shaper.OwnDelivery {
	lines := []string{"", ""}
	for _, line := range p.fields[codec.FlowNumbers:] {
		lines = append(lines, cmp.Or(line, codec.FlowUnset))
	}
	var own shaper.OwnFlow
	_ = codec.ReadOwnLines(&own, lines) // they are ours
	return &shaper.OwnDelivery{URL: own.URL, Headers: own.Headers, Secrets: slices.Concat(own.Secrets, p.secrets.Put)}
}

// applied returns the rate and the burst of a flow with the patch; the rest is as before.
func (p *FlowPatch) applied(own shaper.OwnFlow) shaper.OwnFlow {
	numbers := make([]string, 0, codec.FlowNumbers+1)
	for _, value := range append(p.fields[:codec.FlowNumbers:codec.FlowNumbers], codec.FlowUnset) {
		numbers = append(numbers, cmp.Or(value, codec.FlowUnset))
	}
	changed, _ := codec.ParseOwnFlow(strings.Join(numbers, " "))
	if p.given[shaper.FlowRate] {
		own.Rate = changed.Rate
	}
	if p.given[shaper.FlowBurst] {
		own.Burst = changed.Burst
	}
	return own
}

// jsonLine is a value as one line of JSON: JSON escapes line feeds.
func jsonLine(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return codec.FlowUnset // text and maps of it always marshal
	}
	return string(text)
}

func unknownFlowSetting(setting shaper.FlowSetting) error {
	names := make([]string, 0, len(codec.FlowFields))
	for _, name := range shaper.FlowSettingNames() {
		names = append(names, string(name))
	}
	return fmt.Errorf("%s: is no setting of a flow: want %s", setting, strings.Join(names, ", "))
}

// secretsChange adds and removes secrets of a flow. Its JSON is what own_settings.lua takes.
type secretsChange struct {
	Put  []string `json:"put,omitempty"`
	Drop []string `json:"drop,omitempty"`
	Most int      `json:"most"`

	remove []string // fingerprints of what Drop is to have
}

func (c *secretsChange) isZero() bool { return len(c.Put) == 0 && len(c.remove) == 0 }
