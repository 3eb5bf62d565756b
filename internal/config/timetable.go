package config

import (
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

// drainSettings are the drain windows of a bucket.
type drainSettings struct {
	Cron     string        `mapstructure:"cron"`
	Timezone string        `mapstructure:"timezone"`
	For      time.Duration `mapstructure:"for"`
	Until    string        `mapstructure:"until"`
	FinishBy string        `mapstructure:"finish_by"`
	Manual   bool          `mapstructure:"manual"`
}

func defaultDrain() drainSettings {
	return drainSettings{Timezone: "UTC", Until: string(schedule.UntilWindow)}
}

// drain is nil where there are no windows.
func (s *drainSettings) drain() *schedule.Drain {
	if s == nil {
		return nil
	}
	return &schedule.Drain{Cron: s.Cron, Timezone: s.Timezone, For: s.For, Until: schedule.Until(s.Until), FinishBy: s.FinishBy, Manual: s.Manual}
}

// lineSettings are a line of a rate calendar.
type lineSettings struct {
	From     string         `mapstructure:"from"`
	To       string         `mapstructure:"to"`
	Days     string         `mapstructure:"days"`
	Timezone string         `mapstructure:"timezone"`
	Rate     admission.Rate `mapstructure:"rate"`
}

func defaultLine() lineSettings { return lineSettings{Timezone: "UTC"} }

func calendarOf(lines []lineSettings) []shaper.CalendarLine {
	var calendar []shaper.CalendarLine
	for _, s := range lines {
		calendar = append(calendar, shaper.CalendarLine{From: s.From, To: s.To, Days: s.Days, Timezone: s.Timezone, Rate: s.Rate})
	}
	return calendar
}
