package shaper

import (
	"strconv"
	"time"

	"github.com/tundish-io/tundish/admission"
)

const (
	fieldRateCount = "rate_count"
	fieldRatePer   = "rate_per" // microseconds
)

// settingFields are the fields of the hash conf that a setting is kept in.
var settingFields = map[Setting][]string{
	SettingRate:              {fieldRateCount, fieldRatePer},
	SettingBurst:             {"burst"},
	SettingCapacity:          {"capacity"},
	SettingScheduledCapacity: {"scheduled_capacity"},
	SettingMaxInFlight:       {"max_in_flight"},
	SettingShedLow:           {"shed_low"},
	SettingShedNormal:        {"shed_normal"},
	SettingShedHigh:          {"shed_high"},
}

func fieldsOf(settings []Setting) [][]string {
	fields := make([][]string, len(settings))
	for i, setting := range settings {
		fields[i] = settingFields[setting]
	}
	return fields
}

// settingText is a setting as in the configuration, from the fields of conf.
func settingText(setting Setting, fields map[string]string) string {
	if setting == SettingRate {
		return rateFrom(fields).String()
	}
	return fields[settingFields[setting][0]]
}

func rateFrom(fields map[string]string) admission.Rate {
	count, _ := strconv.ParseInt(fields[fieldRateCount], 10, 64) // what is no number becomes 0
	per, _ := strconv.ParseInt(fields[fieldRatePer], 10, 64)
	return admission.Rate{Count: count, Per: time.Duration(per) * time.Microsecond, Unit: admission.UnitRequests}
}
