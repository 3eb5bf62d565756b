package shaper

import (
	"fmt"
	"net/url"
	"reflect"
	"time"

	"github.com/tundish-io/tundish/internal/setting"
)

// GroupSettingNames lists the settings that a group may override: the settings of flows without the delivery settings.
func GroupSettingNames() []FlowSetting {
	return setting.Changeable[FlowSetting](reflect.TypeFor[OwnBounds]())
}

// PoolSettings lists the settings of a pool that can be changed at run time, in their order.
func PoolSettings() []Setting { return setting.Changeable[Setting](reflect.TypeFor[Pool]()) }

// FlowSetting is a setting that a flow may override, named as in the configuration.
type FlowSetting string

// The settings of one flow: see [OwnFlow].
const (
	FlowRate        FlowSetting = "rate"
	FlowBurst       FlowSetting = "burst"
	FlowCapacity    FlowSetting = "capacity"
	FlowMaxInFlight FlowSetting = "max_in_flight"
	FlowWeight      FlowSetting = "weight"
	FlowBudgets     FlowSetting = "budgets"
	FlowQuotas      FlowSetting = "quotas"
	FlowURL         FlowSetting = "url"
	FlowHeaders     FlowSetting = "headers"
	FlowSecrets     FlowSetting = "secrets"
)

// FlowSettingNames lists them all, in their order.
func FlowSettingNames() []FlowSetting {
	return setting.Changeable[FlowSetting](reflect.TypeFor[OwnFlow]())
}

// RedactedPath replaces the path and the query of a URL that is shown. No flow and no configuration accepts a URL that ends in it.
const RedactedPath = "/***"

// RedactedURL returns a URL as it is shown: its origin, and RedactedPath for the rest, which may be secret.
func RedactedURL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return RedactedPath
	}
	origin, err := OriginOf(u)
	switch {
	case err != nil:
		return u.Scheme + "://" + RedactedPath[1:]
	case u.User == nil && u.RawQuery == "" && u.Fragment == "" && (u.Path == "" || u.Path == "/"):
		return origin.String() + u.Path
	}
	return origin.String() + RedactedPath
}

// Setting is a setting of a bucket that can be changed at run time, named as in
// the configuration.
type Setting string

// The settings.
const (
	SettingRate              Setting = "rate"
	SettingBurst             Setting = "burst"
	SettingCapacity          Setting = "capacity"
	SettingScheduledCapacity Setting = "scheduled_capacity"
	SettingMaxInFlight       Setting = "max_in_flight"
	SettingShedLow           Setting = "shed.low"
	SettingShedNormal        Setting = "shed.normal"
	SettingShedHigh          Setting = "shed.high"
)

// Settings lists all settings that can be changed, in their order.
func Settings() []Setting { return setting.Changeable[Setting](reflect.TypeFor[Bucket]()) }

// Change is a changed setting.
type Change struct {
	Setting Setting `json:"setting"`
	Before  string  `json:"before"`
	After   string  `json:"after"`
}

// Difference is a setting of a process that differs from the effective value.
type Difference struct {
	Setting Setting `json:"setting"`
	Here    string  `json:"here"` // in the configuration of that process
	InForce string  `json:"in_force"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s %s here, %s in force", d.Setting, d.Here, d.InForce)
}

// Dissent is a process whose configuration differs from the effective settings.
type Dissent struct {
	Process     string       `json:"process"` // its program, its number and its host
	At          time.Time    `json:"at"`      // when it last reported that
	Differences []Difference `json:"differences"`
}

// Authorship names the writer of a bucket's settings, with their last changes and the processes that have other settings.
type Authorship struct {
	By          string           // the process that wrote them, "" none
	At          time.Time        // when that process started or reloaded; zero: unknown
	Provisional bool             // that process is read-only, not authoritative: the next dispatcher replaces its settings
	Changes     []SettingsChange // including the changes of its pool, the newest first; at most 20 of each
	Dissents    []Dissent        // processes that have other settings
}

// SettingsChange is a change of settings by an authoritative process that started or reloaded, or by an operator.
type SettingsChange struct {
	At time.Time `json:"at"`

	// The process or the operator.
	By string `json:"by"`

	// What an operator did. Absent where a dispatcher started or reloaded its configuration. A reset, or a set to the value in force, may have
	// before and after alike.
	Action  string   `json:"action,omitempty" jsonschema:"enum=set,enum=reset"`
	Changes []Change `json:"changes"`
}

func (c Change) String() string { return fmt.Sprintf("%s %s → %s", c.Setting, c.Before, c.After) }
