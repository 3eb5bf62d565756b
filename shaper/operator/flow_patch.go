package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
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
	own   shaper.OwnFlow
	given map[shaper.FlowSetting]bool // the settings that the patch sets in own; a zero value removes the flow's own one

	secrets secretsChange // given instead of a list of them
}

// IsZero reports whether the patch changes nothing.
func (p *FlowPatch) IsZero() bool { return len(p.given) == 0 }

func (p *FlowPatch) give(setting shaper.FlowSetting) {
	if p.given == nil {
		p.given = map[shaper.FlowSetting]bool{}
	}
	p.given[setting] = true
}

// Put adds a setting to the patch, its value as in the configuration; not headers and
// secrets. The error begins with the setting.
func (p *FlowPatch) Put(setting shaper.FlowSetting, value string) error {
	own, err := p.own, error(nil)
	switch to, _ := codec.OwnPlace(&own, setting); to := to.(type) {
	case *admission.Rate:
		*to, err = parseFlowRate(value)
	case **int64:
		*to, err = parseFlowNumber(setting, value)
	case *string:
		*to, err = value, checkFlowURL(value)
	case *shaper.Budgets:
		if err = to.UnmarshalText([]byte(value)); err == nil {
			if err := to.Validate(); err != nil { // it names the setting
				return err
			}
		}
	case *shaper.Quotas:
		if err = to.UnmarshalText([]byte(value)); err == nil {
			if err := to.Validate(); err != nil { // it names the setting
				return err
			}
		}
	default:
		return unknownFlowSetting(setting)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	p.own = own
	p.give(setting)
	return nil
}

func parseFlowRate(text string) (admission.Rate, error) {
	rate, err := admission.ParseRate(text)
	switch {
	case err != nil && rate.Count == 0 && rate.Per > 0:
		err = fmt.Errorf("%q would mean that the flow is paused: pause it, so that all see why", text)
	case err == nil && rate.Unit != admission.UnitRequests:
		err = fmt.Errorf("%q: only requests are paced in this version, not %s", text, rate.Unit)
	}
	return rate, err
}

func parseFlowNumber(setting shaper.FlowSetting, text string) (*int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", text)
	}
	low, high := int64(0), int64(shaper.MaxCapacity)
	switch setting {
	case shaper.FlowBurst:
		low, high = 1, shaper.MaxBurst
	case shaper.FlowWeight:
		low, high = 1, shaper.MaxWeight
	}
	if n < low || n > high {
		return nil, fmt.Errorf("%d: want %d to %d", n, low, high)
	}
	return &n, nil
}

func checkFlowURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || len(text) > maxFlowText || !utf8.ValidString(text) {
		return fmt.Errorf("want an absolute http or https URL of at most %d bytes of UTF-8", maxFlowText)
	}
	if strings.HasSuffix(text, shaper.RedactedPath) {
		return errors.New("is redacted: give the whole URL, or leave it out to keep it")
	}
	return nil
}

// PutHeaders sets the headers of the flow's deliveries. [Config.CheckFlow] checks what a worker kind demands of them.
func (p *FlowPatch) PutHeaders(headers map[string]string) error {
	if len(headers) > maxFlowHeaders {
		return fmt.Errorf("%s: %d: want at most %d", shaper.FlowHeaders, len(headers), maxFlowHeaders)
	}
	for name, value := range headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || len(value) > maxFlowText || !utf8.ValidString(value) {
			return fmt.Errorf("%s: %q: want a valid name, and a value of at most %d bytes of UTF-8", shaper.FlowHeaders, name, maxFlowText)
		}
	}
	p.own.Headers = headers
	p.give(shaper.FlowHeaders)
	return nil
}

// Clear has a setting be as for all flows again.
func (p *FlowPatch) Clear(settings ...shaper.FlowSetting) error {
	for _, setting := range settings {
		to, _ := codec.OwnPlace(&p.own, setting)
		if to == nil {
			return unknownFlowSetting(setting)
		}
		if setting == shaper.FlowSecrets && !p.secrets.isZero() {
			return errSecretsTwice
		}
		reflect.ValueOf(to).Elem().SetZero()
		p.give(setting)
	}
	return nil
}

// delivery returns the patch's settings for deliveries.
func (p *FlowPatch) delivery() *shaper.OwnDelivery {
	return &shaper.OwnDelivery{URL: p.own.URL, Headers: p.own.Headers, Secrets: slices.Concat(p.own.Secrets, p.secrets.Put)}
}

// applied returns own with the patch's rate and burst; the rest does not change.
func (p *FlowPatch) applied(own shaper.OwnFlow) shaper.OwnFlow {
	if p.given[shaper.FlowRate] {
		own.Rate = p.own.Rate
	}
	if p.given[shaper.FlowBurst] {
		own.Burst = p.own.Burst
	}
	return own
}

// jsonLine is a value as one line of JSON: JSON escapes line feeds.
func jsonLine(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return codec.FlowUnset // text and lists of it always marshal
	}
	return string(text)
}

func unknownFlowSetting(setting shaper.FlowSetting) error {
	var names []string
	for _, name := range shaper.FlowSettingNames() {
		names = append(names, string(name))
	}
	return fmt.Errorf("%s: is no setting of a flow: want %s", setting, strings.Join(names, ", "))
}

// secretsChange adds and removes secrets of a flow. Its JSON is an argument of own_settings.lua.
type secretsChange struct {
	Put  []string `json:"put,omitempty"`
	Drop []string `json:"drop,omitempty"`
	Most int      `json:"most"`

	remove []string // fingerprints of the secrets that go into Drop
}

func (c *secretsChange) isZero() bool { return len(c.Put) == 0 && len(c.remove) == 0 }
