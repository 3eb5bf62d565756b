package shaper

import "fmt"

// GroupSettingNames lists the settings that one group may have of its own: those of
// flows that are not for deliveries.
func GroupSettingNames() []FlowSetting {
	return []FlowSetting{FlowRate, FlowBurst, FlowCapacity, FlowMaxInFlight, FlowWeight}
}

// PoolSettings lists the settings of a pool that can be changed at run time.
func PoolSettings() []Setting { return []Setting{SettingRate, SettingBurst, SettingMaxInFlight} }

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

// RedactedPath stands for the path and the query of a flow's URL where the URL is shown. No
// flow is given a URL that ends in it.
const RedactedPath = "/***"

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
func Settings() []Setting {
	return []Setting{
		SettingRate, SettingBurst, SettingCapacity, SettingScheduledCapacity, SettingMaxInFlight,
		SettingShedLow, SettingShedNormal, SettingShedHigh,
	}
}

// Change is what became of a setting.
type Change struct {
	Setting Setting `json:"setting"`
	Before  string  `json:"before"`
	After   string  `json:"after"`
}

func (c Change) String() string { return fmt.Sprintf("%s %s → %s", c.Setting, c.Before, c.After) }
