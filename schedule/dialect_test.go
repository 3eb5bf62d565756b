package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/schedule"
)

// Lines of other dialects are refused, with what to write here.
func TestLinesOfOtherDialects(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"0 12 * * ? *":                 `EventBridge, with a year: write "0 12 * * *"`,
		"0/5 * ? * * *":                `EventBridge, with a year: write "0/5 * * * *"`,
		"0 8 1 * ? *":                  `EventBridge, with a year: write "0 8 1 * *"`,
		"0 12 ? * 2-6 *":               `EventBridge, with a year: write "0 12 * * MON-FRI"`,
		"0 12 ? * 6L *":                `EventBridge, with a year: write "0 12 * * FRIL"`,
		"0 12 ? * 2#1 *":               `EventBridge, with a year: write "0 12 * * MON#1"`,
		"0 12 ? * 1,7 2027":            `there are no years here; without the year write "0 12 * * SUN,SAT"`,
		"cron(0 12 * * ? *)":           `EventBridge, with a year: write "0 12 * * *"`,
		"cron(0 12 L * ? *)":           `write "0 12 L * *"`,
		"rate(5 minutes)":              `is a rate of EventBridge: write "@every 5m"`,
		"rate(1 day)":                  `write "@every 24h"`,
		"0 0 12 * * ?":                 `Quartz or Spring: write "0 12 * * *"`,
		"0 15 10 ? * MON-FRI":          `Quartz or Spring: write "15 10 * * MON-FRI"`,
		"30 0 12 ? * 1":                `Quartz or Spring: write "30 0 12 * * SUN"`,
		"0 0 12 ? * 2 2027":            `Quartz, with seconds and a year: there are no years here; without the year write "0 12 * * MON"`,
		"0 0 12 ? * 2 *":               `Quartz, with seconds and a year: write "0 12 * * MON"`,
		"? ? * * *":                    `only a day field may be "?"`,
		"? * * * *":                    "EventBridge and Quartz",
		"0 12 * ? *":                   `only a day field may be "?"`,
		"0 12 ?/2 * *":                 `only a day field may be "?"`,
		"0 ? 12 * * *":                 "EventBridge",
		"*/90 * * * *":                 `the step of "*/90" is 1 to 60: a longer period is "@every 90m"`,
		"0 */25 * * *":                 `the step of "*/25" is 1 to 24`,
		"10-20/12 * * * *":             `the step of "10-20/12" is 1 to 11`,
		"0 9 */100,1-7 * MON":          `day of month "*/100,1-7": the step of "*/100" is 1 to 31`,
		"0 0 * * L":                    `"L" needs a day: FRIL is the last Friday`,
		"0 0 * * MON#6":                "want #1 to #5",
		"0 0 * * 8":                    `"8" is none of: 0 to 7 or SUN to SAT`,
		"0 0 * * MONDAY":               `"MONDAY" is none of`,
		"0 0 * * XYZL":                 `"XYZ" is none of`,
		"0 0 32W * *":                  "want 1W to 31W",
		"0 0 L-31 * *":                 "want L-1 to L-30",
		"0 0 WL * *":                   `day of month "WL": "WL" is none of: 1 to 31`,
		"L * * * *":                    `minute "L": "L" is none of: 0 to 59`,
		"0 0 * 13 *":                   `month "13": "13" is none of: 1 to 12 or JAN to DEC`,
		"0 0 0 * *":                    `day of month "0"`,
		"0 0 * * 1--5":                 "is none of",
		"*-5 * * * *":                  "is none of",
		"1,,2 * * * *":                 "is none of",
		"99999999999999999999 * * * *": "is none of",
		"+5 * * * *":                   "is none of",
	} {
		_, err := schedule.Parse(line, "", "x")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q: %v, want an error with %q", line, err, want)
		}
	}
}

// Days that no number names in every month, wraps, and Sunday as 7.
func TestNamedDays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, from, want string }{
		{"0 9 L * *", "2027-01-15 00:00", "01-31 02-28 03-31"},
		{"0 9 L 2 ?", "2027-01-15 00:00", "2027-02-28 2028-02-29"},
		{"0 9 L-3 * *", "2027-01-15 00:00", "01-28 02-25 03-28"},
		{"0 9 L-30 * *", "2027-01-15 00:00", "03-01 05-01 07-01"}, // months of 31 days
		{"0 9 LW * *", "2027-01-15 00:00", "01-29 02-26 03-31 04-30"},
		{"0 9 1W * *", "2026-07-15 00:00", "08-03 09-01 10-01 11-02"}, // 1 August is a Saturday, 1 November a Sunday
		{"0 9 15W * *", "2026-08-01 00:00", "08-14 09-15 10-15 11-16"},
		{"0 9 31W * *", "2026-10-01 00:00", "10-30 12-31"},
		{"0 9 * * 5L", "2027-01-15 00:00", "01-29 02-26 03-26"},
		{"0 9 * * FRIL", "2027-01-15 00:00", "01-29 02-26 03-26"},
		{"0 9 * * friL", "2027-01-15 00:00", "01-29"},
		{"0 9 * * 7L", "2027-01-15 00:00", "01-31 02-28 03-28"},
		{"0 9 * * MON#1", "2026-11-15 00:00", "12-07 01-04 02-01"},
		{"0 9 * * 0#5", "2026-11-15 00:00", "11-29 01-31 05-30"},
		{"0 9 * * MON#1,FRIL", "2026-11-15 00:00", "11-27 12-07 12-25"},
		{"0 9 1,L * *", "2027-01-15 00:00", "01-31 02-01 02-28 03-01"},
		{"0 9 L * MON", "2026-11-24 00:00", "11-30 12-07 12-14 12-21 12-28 12-31"}, // either day
		{"0 9 L 12 MON#1", "2026-11-24 00:00", "12-07 12-31"},
		{"0 9 * * 7", "2026-11-24 00:00", "11-29 12-06"},
		{"0 9 * * 5-7", "2026-11-24 00:00", "11-27 11-28 11-29 12-04"},
		{"0 9 * * 1,7", "2026-11-24 00:00", "11-29 11-30 12-06"},
		{"0 9 * * FRI-MON", "2026-11-24 00:00", "11-27 11-28 11-29 11-30 12-04"},
		{"0 9 * * SUN-TUE", "2026-11-25 00:00", "11-29 11-30 12-01 12-06"},
		{"0 9 * * 0-7", "2026-11-25 00:00", "11-25 11-26 11-27 11-28 11-29 11-30 12-01 12-02"},
		{"0 9 * * 7-7", "2026-11-25 00:00", "11-29 12-06"},
		{"0 9 1 NOV-FEB *", "2026-11-24 00:00", "12-01 01-01 02-01 2027-11-01"},
		{"0 9 30-2 * *", "2026-11-24 00:00", "11-30 12-01 12-02 12-30 12-31 01-01 01-02"},
		{"0 22-2/2 * * *", "2026-11-24 12:00", "24T22 25T00 25T02 25T22"},
		{"50-10/10 3 * * *", "2026-11-24 12:00", "25T03:00 25T03:10 25T03:50"},
		{"0 0 28-31 2 *", "2027-01-24 12:00", "2027-02-28 2028-02-28 2028-02-29"},
	} {
		wants := strings.Fields(c.want)
		fires := mustParse(t, c.line, "").NextN(at(t, c.from), len(wants))
		for i, want := range wants {
			if i >= len(fires) || !strings.Contains(fires[i].Format(time.RFC3339), want) {
				t.Errorf("%q after %s fires at %v, want %s", c.line, c.from, fires, c.want)
				break
			}
		}
	}
}

// The days of a month, looked for another way.
func TestNamedDaysOfManyMonths(t *testing.T) {
	t.Parallel()
	weekdays := []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	rapid.Check(t, func(t *rapid.T) {
		year, month := rapid.IntRange(1971, 2100).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month"))
		first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
		days := 0
		for day := first; day.Month() == month; day = day.AddDate(0, 0, 1) {
			days++
		}
		works := func(day int) bool {
			weekday := first.AddDate(0, 0, day-1).Weekday()
			return weekday != time.Saturday && weekday != time.Sunday
		}
		n := rapid.IntRange(1, days).Draw(t, "day")
		near := n
		for distance := 0; !works(near); distance++ {
			if near = n - distance; near >= 1 && works(near) {
				break
			}
			if near = n + distance; near > days {
				near = n
			}
		}
		lastWorking := days
		for !works(lastWorking) {
			lastWorking--
		}
		var onWeekday []int
		weekday := rapid.IntRange(0, 6).Draw(t, "weekday")
		for day := 1; day <= days; day++ {
			if int(first.AddDate(0, 0, day-1).Weekday()) == weekday {
				onWeekday = append(onWeekday, day)
			}
		}
		most := len(onWeekday)
		if month == time.February { // a fifth weekday comes every 28 years, and a line that fires so seldom is refused
			most = 4
		}
		nth := rapid.IntRange(1, most).Draw(t, "nth")
		for fields, want := range map[string]int{
			fmt.Sprintf("%dW %d *", n, month): near, fmt.Sprintf("LW %d *", month): lastWorking, fmt.Sprintf("L %d *", month): days,
			fmt.Sprintf("* %d %sL", month, weekdays[weekday]): onWeekday[len(onWeekday)-1],
			fmt.Sprintf("* %d %d#%d", month, weekday, nth):    onWeekday[nth-1],
		} {
			r, err := schedule.Parse("0 9 "+fields, "", "")
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Next(first); got.Year() != year || got.Month() != month || got.Day() != want {
				t.Fatalf("%q after %s fires at %s, want day %d", fields, first, got, want)
			}
		}
	})
}

// What crontab and package cron have in common fires as package cron has it.
func TestCommonLinesFireAsThoseOfCron(t *testing.T) {
	t.Parallel()
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	rapid.Check(t, func(t *rapid.T) {
		fields := make([]string, 0, 6)
		for _, bounds := range [][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
			var parts []string
			for range rapid.IntRange(1, 3).Draw(t, "parts") {
				low := rapid.IntRange(bounds[0], bounds[1]).Draw(t, "low")
				high := rapid.IntRange(low, bounds[1]).Draw(t, "high")
				part := rapid.SampledFrom([]string{"*", "*", fmt.Sprint(low), fmt.Sprintf("%d-%d", low, high)}).Draw(t, "part")
				if step := rapid.IntRange(0, 7).Draw(t, "step"); step > 0 && (part == "*" || step <= high-low+1) {
					part = fmt.Sprintf("%s/%d", part, step)
				}
				parts = append(parts, part)
			}
			fields = append(fields, strings.Join(parts, ","))
		}
		line := strings.Join(fields[rapid.IntRange(0, 1).Draw(t, "seconds"):], " ")
		theirs, err := parser.Parse(line)
		if err != nil {
			t.Fatal(line, err)
		}
		ours, err := schedule.Parse(line, "", "")
		start := time.Unix(rapid.Int64Range(1767225600, 1798761600).Draw(t, "start"), 0).UTC()
		if err != nil {
			if never := theirs.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)); !never.IsZero() {
				t.Fatalf("%q: %v; cron fires at %s", line, err, never)
			}
			return
		}
		for range 5 {
			want, got := theirs.Next(start), ours.Next(start)
			if !want.Equal(got) {
				t.Fatalf("%q after %s fires at %s, cron's at %s", line, start, got, want)
			}
			if start = got; got.IsZero() {
				return
			}
		}
	})
}

// Of the day fields and of time zones that are often not what is meant.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, zone, want string }{
		{"0 9 1-7 * MON", "", "cron: names a day of month and a day of week: either day fires"},
		{"0 0 */2 * MON", "", "either day fires"},
		{"0 0 L * FRIL", "", "either day fires"},
		{"0 0 */1 * MON", "", ""},
		{"0 0 * * MON", "", ""},
		{"0 0 ? * MON", "", ""},
		{"0 0 1 * ?", "", ""},
		{"@weekly", "Europe/Paris", ""},
		{"@every 10m", "EST", "no summer time: for clocks that change, use America/New_York"},
		{"0 9 * * *", "EST", "America/New_York"},
		{"0 9 * * *", "MST", "America/Denver"},
		{"0 9 * * *", "Etc/GMT+2", "is UTC-2: its sign is the other way round"},
		{"0 9 * * *", "Etc/GMT", ""},
		{"0 9 * * *", "EST5EDT", ""},
		{"0 9 * * *", "CET", ""},
	} {
		got := mustParse(t, c.line, c.zone).Warnings()
		if (len(got) == 0) != (c.want == "") || !strings.Contains(strings.Join(got, " "), c.want) {
			t.Errorf("%q in %q: %q, want %q", c.line, c.zone, got, c.want)
		}
	}
	if got := mustParse(t, "0 9 1 * MON", "EST").Warnings(); len(got) != 2 {
		t.Errorf("%q, want two", got)
	}
}

func TestUnknownZonesHaveSuggestions(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{
		"PST": "write America/Los_Angeles", "IST": "write Asia/Kolkata, Europe/Dublin or Asia/Jerusalem", "BST": "write Europe/London", "bst": "write Europe/London",
		"UTC+2": "Etc/GMT-2, whose sign is the other way round", "UTC-05:00": "Etc/GMT+5", "GMT+2": "Etc/GMT-2", "+02:00": "Etc/GMT-2", "+5:30": "such as Asia/Kolkata",
		"UTC+0": "write UTC", "UTC-00:30": "name a city", "UTC+99": "name a city",
		"europe/paris": "write Europe/Paris", "EUROPE/PARIS": "write Europe/Paris", "america/new york": "write America/New_York", "Berlin": "write Europe/Berlin",
		"new_york": "write America/New_York", "utc": "write UTC", "us/eastern": "write US/Eastern", "etc/utc": "write Etc/UTC", "america/port_of_spain": "write America/Port_of_Spain",
		"Eastern Standard Time": "write America/New_York", "posixrules": "is no zone but a file", "localtime": "differs from machine to machine",
		"Factory": "is no zone", "right/UTC": "is no zone", "Mars/Olympus": "want a name of the IANA database", "../etc/passwd": "want a name of the IANA database", "/etc/passwd": "want a name",
	} {
		_, err := schedule.Parse("0 9 * * *", zone, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", zone, err, want)
		}
	}
}

// Named days follow the same rules where clocks change.
func TestNamedDaysWhereClocksChange(t *testing.T) {
	t.Parallel()
	var got []string
	for _, fire := range mustParse(t, "30 2 * 3,10 SUNL", "Europe/Paris").NextN(at(t, "2026-01-01 00:00"), 2) {
		got = append(got, fire.Format(time.RFC3339))
	}
	if want := []string{"2026-03-29T03:00:00+02:00", "2026-10-25T02:30:00+02:00"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
