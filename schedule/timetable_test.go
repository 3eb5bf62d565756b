package schedule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/schedule"
)

func perSecond(n int64) schedule.Rate { return schedule.Rate{Count: n, Per: time.Second} }

func compile(t *testing.T, p schedule.Plan) *schedule.Timetable {
	t.Helper()
	table, err := p.Timetable("test", perSecond(50))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// shown is the first n stretches, such as "01 02:00 open 200/1s empty by 06:00", in a zone.
func shown(t *testing.T, table *schedule.Timetable, from, zone string, n int) string {
	t.Helper()
	place, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	stretches, end := table.Stretches(at(t, from))
	var lines []string
	for _, s := range stretches[:min(n, len(stretches))] {
		text := s.From.In(place).Format("02 15:04") + " closed"
		if s.Open {
			text = s.From.In(place).Format("02 15:04") + " open"
		}
		if s.Rate.Count > 0 {
			text += fmt.Sprintf(" %d/%s", s.Rate.Count, s.Rate.Per)
		}
		if s.UntilEmpty {
			text += " empty"
		}
		if !s.Finish.IsZero() {
			text += " by " + s.Finish.In(place).Format("15:04")
		}
		lines = append(lines, text)
	}
	if len(stretches) < n {
		if end.IsZero() {
			lines = append(lines, "for ever")
		} else {
			lines = append(lines, end.In(place).Format("02 15:04")+" end")
		}
	}
	return strings.Join(lines, ", ")
}

func TestStretches(t *testing.T) {
	t.Parallel()
	const paris, newYork = "Europe/Paris", "America/New_York"
	night := schedule.Line{From: "22:00", To: "06:00", Days: "mon-fri", Rate: perSecond(200)}
	nightIn := func(zone, from, to string) schedule.Line {
		return schedule.Line{From: from, To: to, Timezone: zone, Rate: perSecond(200)}
	}
	for _, c := range []struct {
		name  string
		drain *schedule.Drain
		lines []schedule.Line
		zone  string
		from  string
		n     int
		want  string
	}{
		{"a window each night", &schedule.Drain{Cron: "0 2 * * *", For: 4 * time.Hour}, nil, "UTC", "2026-01-01 00:00", 4,
			"01 00:00 closed, 01 02:00 open, 01 06:00 closed, 02 02:00 open"},
		{"from within a window", &schedule.Drain{Cron: "0 2 * * *", For: 4 * time.Hour}, nil, "UTC", "2026-01-01 03:00", 2,
			"01 03:00 open, 01 06:00 closed"},
		{"from its end", &schedule.Drain{Cron: "0 2 * * *", For: 4 * time.Hour}, nil, "UTC", "2026-01-01 06:00", 2,
			"01 06:00 closed, 02 02:00 open"},
		{"until empty, with a finish", &schedule.Drain{Cron: "0 2 * * *", For: 4 * time.Hour, Until: schedule.UntilEmpty, FinishBy: "3h30m"}, nil,
			"UTC", "2026-01-01 02:00", 3, "01 02:00 open empty by 05:30, 01 05:30 open empty, 01 06:00 closed"},
		{"a finish at a time of day", &schedule.Drain{Cron: "0 22 * * *", Timezone: paris, For: 9 * time.Hour, FinishBy: "06:00"}, nil,
			paris, "2026-01-01 21:00", 3, "01 22:00 open by 06:00, 02 06:00 open, 02 07:00 closed"},
		{"a finish is the end without another one", &schedule.Drain{Cron: "0 2 * * *", FinishBy: "06:00"}, nil,
			"UTC", "2026-01-01 02:00", 2, "01 02:00 open by 06:00, 01 06:00 closed"},
		{"each week: as far as the next end", &schedule.Drain{Cron: "0 2 * * sun", For: time.Hour}, nil, "UTC", "2026-01-01 00:00", 2,
			"01 00:00 closed, 04 02:00 end"},
		{"windows that touch", &schedule.Drain{Cron: "0 * * * *", For: time.Hour}, nil, "UTC", "2026-01-01 00:00", 2,
			"01 00:00 open, 01 01:00 open"},
		{"no window at all", &schedule.Drain{Manual: true}, nil, "UTC", "2026-01-01 00:00", 2, "01 00:00 closed, for ever"},

		{"a window when clocks go forwards takes as long", &schedule.Drain{Cron: "0 1 * * *", Timezone: newYork, For: 4 * time.Hour}, nil,
			newYork, "2026-03-08T06:00:00Z", 3, "08 01:00 open, 08 06:00 closed, 09 01:00 open"},
		{"a window at a time that does not exist", &schedule.Drain{Cron: "30 2 * * *", Timezone: newYork, For: time.Hour}, nil,
			newYork, "2026-03-08T07:00:00Z", 3, "08 03:00 open, 08 04:00 closed, 09 02:30 open"},
		{"a window when clocks go back", &schedule.Drain{Cron: "30 1 * * *", Timezone: newYork, For: 2 * time.Hour}, nil,
			newYork, "2026-11-01T05:30:00Z", 3, "01 01:30 open, 01 02:30 closed, 02 01:30 open"},
		{"a finish on the shorter night", &schedule.Drain{Cron: "0 1 * * *", Timezone: newYork, For: 4 * time.Hour, FinishBy: "04:00"}, nil,
			newYork, "2026-03-08T06:00:00Z", 3, "08 01:00 open by 04:00, 08 04:00 open, 08 06:00 closed"},
		{"a finish on the longer night is cut to the end", &schedule.Drain{Cron: "0 1 * * *", Timezone: newYork, For: 4 * time.Hour, FinishBy: "04:30"}, nil,
			newYork, "2026-11-01T05:00:00Z", 2, "01 01:00 open by 04:00, 01 04:00 closed"},

		{"a calendar", nil, []schedule.Line{night}, "UTC", "2026-01-01 12:00", 5, // a Thursday
			"01 12:00 open, 01 22:00 open 200/1s, 02 06:00 open, 02 22:00 open 200/1s, 03 06:00 open"},
		{"the days are those of from", nil, []schedule.Line{night}, "UTC", "2026-01-03 05:00", 3, // a Saturday
			"03 05:00 open 200/1s, 03 06:00 open, 05 22:00 open 200/1s"},
		{"days over the end of the week", nil, []schedule.Line{{From: "00:00", To: "12:00", Days: "sat-sun, tue", Rate: perSecond(1)}}, "UTC", "2026-01-03 05:00", 5,
			"03 05:00 open 1/1s, 03 12:00 open, 04 00:00 open 1/1s, 04 12:00 open, 06 00:00 open 1/1s"},
		{"two lines that touch", nil, []schedule.Line{night, {From: "06:00", To: "22:00", Days: "tue-sat", Rate: perSecond(3)}}, "UTC", "2026-01-02 05:00", 3,
			"02 05:00 open 200/1s, 02 06:00 open 3/1s, 02 22:00 open 200/1s"},
		{"a calendar when clocks go forwards", nil, []schedule.Line{nightIn(newYork, "01:00", "04:00")}, newYork, "2026-03-08T06:00:00Z", 3,
			"08 01:00 open 200/1s, 08 04:00 open, 09 01:00 open 200/1s"},
		{"a line that does not exist on that day", nil, []schedule.Line{nightIn(newYork, "02:15", "02:45")}, newYork, "2026-03-08T05:00:00Z", 3,
			"08 00:00 open, 09 02:15 open 200/1s, 09 02:45 open"},
		{"a line into a time that does not exist", nil, []schedule.Line{nightIn(newYork, "01:00", "02:30")}, newYork, "2026-03-08T06:00:00Z", 2,
			"08 01:00 open 200/1s, 08 03:00 open"},
		{"a calendar when clocks go back", nil, []schedule.Line{nightIn(newYork, "00:00", "01:30")}, newYork, "2026-11-01T04:00:00Z", 3,
			"01 00:00 open 200/1s, 01 01:30 open, 02 00:00 open 200/1s"},
		{"a line over the hour that comes twice", nil, []schedule.Line{nightIn(newYork, "00:00", "03:00")}, newYork, "2026-11-01T04:00:00Z", 2,
			"01 00:00 open 200/1s, 01 03:00 open"},

		{"a calendar in a window", &schedule.Drain{Cron: "0 21 * * *", For: 10 * time.Hour, FinishBy: "05:00"}, []schedule.Line{night}, "UTC", "2026-01-01 12:00", 6,
			"01 12:00 closed, 01 21:00 open by 05:00, 01 22:00 open 200/1s by 05:00, 02 05:00 open 200/1s, 02 06:00 open, 02 07:00 closed"},
	} {
		table := compile(t, schedule.Plan{Drain: c.drain, Calendar: c.lines})
		if got := shown(t, table, c.from, c.zone, c.n); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A table has a bounded number of stretches, also where windows are short, and tells where it ends.
func TestStretchesAreBounded(t *testing.T) {
	t.Parallel()
	table := compile(t, schedule.Plan{Drain: &schedule.Drain{Cron: "* * * * *", For: 30 * time.Second}})
	stretches, end := table.Stretches(at(t, "2026-01-01 00:00"))
	if len(stretches) != schedule.MaxStretches || !end.Equal(at(t, "2026-01-01 00:32")) {
		t.Errorf("%d stretches until %s", len(stretches), end)
	}
}

func TestBadPlans(t *testing.T) {
	t.Parallel()
	night := schedule.Drain{Cron: "0 2 * * *", For: 4 * time.Hour}
	changed := func(change func(*schedule.Drain)) *schedule.Drain {
		d := night
		change(&d)
		return &d
	}
	fast := schedule.Line{From: "22:00", To: "06:00", Rate: perSecond(9)}
	line := func(change func(*schedule.Line)) schedule.Line {
		l := fast
		change(&l)
		return l
	}
	for _, c := range []struct {
		drain *schedule.Drain
		lines []schedule.Line
		want  string
	}{
		{&schedule.Drain{}, nil, `drain.cron: is missing: say when a window opens, such as "0 2 * * *", or set manual = true`},
		{changed(func(d *schedule.Drain) { d.Cron = "0 2 * *" }), nil, `drain.cron: "0 2 * *": has 4 fields`},
		{changed(func(d *schedule.Drain) { d.Timezone = "Paris" }), nil, `drain.timezone: "Paris": is unknown`},
		{changed(func(d *schedule.Drain) { d.For = 0 }), nil, `drain.for: is missing`},
		{changed(func(d *schedule.Drain) { d.For = 1500 * time.Millisecond }), nil, `drain.for: 1.5s: want whole seconds`},
		{changed(func(d *schedule.Drain) { d.For = 25 * time.Hour }), nil,
			`drain.for: 25h0m0s: is longer than the time to the next window: one opens on Wed 2025-01-01 02:00:00 UTC, the next 24h0m0s later`},
		{changed(func(d *schedule.Drain) { d.For, d.Timezone = 24*time.Hour, "Europe/Paris" }), nil, // the shortest day has 23 hours
			`drain.for: 24h0m0s: is longer than the time to the next window: one opens on Sun 2025-03-30 03:00:00 CEST, the next 23h0m0s later`},
		{changed(func(d *schedule.Drain) { d.Until = "full" }), nil, `drain.until: "full": want window or empty`},
		{changed(func(d *schedule.Drain) { d.FinishBy = "7:00" }), nil, `drain.finish_by: "7:00": want a time of day such as "06:00"`},
		{changed(func(d *schedule.Drain) { d.FinishBy = "5h" }), nil, `drain.finish_by: "5h": is after the window's end, 4h0m0s after its opening`},
		{changed(func(d *schedule.Drain) { d.FinishBy = "0s" }), nil, `drain.finish_by: "0s": want whole seconds after the opening`},
		{changed(func(d *schedule.Drain) { d.FinishBy = "06:30" }), nil, `drain.finish_by: "06:30": is after the window's end: a window opens at 02:00 UTC and lasts 4h0m0s`},
		{changed(func(d *schedule.Drain) { d.Manual = true }), nil, "drain.cron: is given with manual"},
		{&schedule.Drain{Manual: true, FinishBy: "06:00"}, nil, "drain.finish_by: is given with manual"},
		{nil, []schedule.Line{line(func(l *schedule.Line) { l.From = "24:00" })}, `calendar[0].from: "24:00": want a time of day from "00:00" to "23:59"`},
		{nil, []schedule.Line{line(func(l *schedule.Line) { l.To = l.From })}, `calendar[0].to: "22:00": is the same as from`},
		{nil, []schedule.Line{line(func(l *schedule.Line) { l.Days = "mo" })}, `calendar[0].days: "mo": want days such as "mon-fri"`},
		{nil, []schedule.Line{line(func(l *schedule.Line) { l.Rate = schedule.Rate{} })}, "calendar[0].rate: is missing"},
		{nil, []schedule.Line{line(func(l *schedule.Line) { l.Timezone = "Mars" })}, `calendar[0].timezone: "Mars": is unknown`},
		{nil, []schedule.Line{fast, line(func(l *schedule.Line) { l.From, l.To = "05:00", "07:00" })}, "calendar[1].from: overlaps with calendar[0], as on Wed 2025-01-01 05:00 UTC"},
		{nil, []schedule.Line{line(func(l *schedule.Line) { l.To = "12:00" }), line(func(l *schedule.Line) { // 22:00 in New York is 04:00 in Paris but for some weeks
			l.From, l.To, l.Timezone = "18:00", "22:00", "America/New_York"
		})}, "calendar[1].from: overlaps with calendar[0]"},
		{nil, make([]schedule.Line, schedule.MaxLines+1), "calendar: has 65 lines: want at most 64"},
	} {
		_, err := schedule.Plan{Drain: c.drain, Calendar: c.lines}.Timetable("test", perSecond(50))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v %+v: %v; want %s", c.drain, c.lines, err, c.want)
		}
	}
	_, err := schedule.Plan{Drain: changed(func(d *schedule.Drain) { d.FinishBy = "30m" })}.Timetable("test", schedule.Rate{Count: 1, Per: time.Hour})
	if err == nil || !strings.Contains(err.Error(), `drain.finish_by: "30m": no rate is possible: at 1 in 1h0m0s no job leaves within 30m0s`) {
		t.Errorf("a finish before the first job: %v", err)
	}
}

// The stretches of any plan, from any time on, follow each other and say at each instant what a plain reading of the plan says.
func TestStretchesAgreeWithThePlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"", "America/New_York", "Europe/Paris", "Australia/Lord_Howe"}).Draw(t, "zone")
		cron := rapid.SampledFrom([]string{"0 2 * * *", "30 1 * * *", "0 */6 * * *", "15 23 * * fri", "@every 7h"}).Draw(t, "cron")
		length := time.Duration(rapid.IntRange(60, 5*3600).Draw(t, "for")) * time.Second
		plan := schedule.Plan{Drain: &schedule.Drain{Cron: cron, Timezone: zone, For: length}}
		if rapid.Bool().Draw(t, "calendar") {
			plan.Calendar = []schedule.Line{{From: "01:15", To: "02:45", Days: "mon-sat", Timezone: zone, Rate: perSecond(7)}}
		}
		table, err := plan.Timetable("test", perSecond(50))
		if err != nil {
			t.Fatal(err)
		}
		rule, err := schedule.Parse(cron, zone, "test")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(rapid.Int64Range(1767225600, 1798761600).Draw(t, "now"), 0)
		stretches, end := table.Stretches(now)
		for i, s := range stretches {
			till := end
			if i+1 < len(stretches) {
				till = stretches[i+1].From
			}
			if !till.After(s.From) {
				t.Fatalf("stretch %d from %s ends at %s", i, s.From, till)
			}
			for _, at := range []time.Time{s.From, s.From.Add(till.Sub(s.From) / 2).Truncate(time.Second), till.Add(-time.Second)} {
				opened := rule.Next(at.Add(-length)) // the first opening of which the window is not over
				if want := !opened.After(at); s.Open != want {
					t.Fatalf("at %s open is %t, want %t", at, s.Open, want)
				}
			}
		}
		if !stretches[0].From.Equal(now) {
			t.Fatalf("the first stretch begins at %s, not at %s", stretches[0].From, now)
		}
	})
}
