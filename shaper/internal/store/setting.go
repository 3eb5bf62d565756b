package store

import (
	"strconv"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

const (
	FieldRateCount = "rate_count"
	FieldRatePer   = "rate_per" // microseconds
)

// SettingFields are the fields of the hash conf that a setting is kept in.
var SettingFields = map[shaper.Setting][]string{
	shaper.SettingRate:              {FieldRateCount, FieldRatePer},
	shaper.SettingBurst:             {"burst"},
	shaper.SettingCapacity:          {"capacity"},
	shaper.SettingScheduledCapacity: {"scheduled_capacity"},
	shaper.SettingMaxInFlight:       {"max_in_flight"},
	shaper.SettingShedLow:           {"shed_low"},
	shaper.SettingShedNormal:        {"shed_normal"},
	shaper.SettingShedHigh:          {"shed_high"},
}

func FieldsOf(settings []shaper.Setting) [][]string {
	fields := make([][]string, len(settings))
	for i, setting := range settings {
		fields[i] = SettingFields[setting]
	}
	return fields
}

// SettingText is a setting as in the configuration, from the fields of conf.
func SettingText(setting shaper.Setting, fields map[string]string) string {
	if setting == shaper.SettingRate {
		return RateFrom(fields).String()
	}
	return fields[SettingFields[setting][0]]
}

func RateFrom(fields map[string]string) admission.Rate {
	count, _ := strconv.ParseInt(fields[FieldRateCount], 10, 64) // what is no number becomes 0
	per, _ := strconv.ParseInt(fields[FieldRatePer], 10, 64)
	return admission.Rate{Count: count, Per: time.Duration(per) * time.Microsecond, Unit: admission.UnitRequests}
}
