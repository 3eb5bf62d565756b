package schedule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/schedule"
)

func mustParse(t *testing.T, line, zone string) *schedule.Rule {
	t.Helper()
	r, err := schedule.Parse(line, zone, "test")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if parsed, err := time.Parse(layout, text); err == nil {
			return parsed
		}
	}
	t.Fatalf("%q is no time", text)
	return time.Time{}
}

func TestFireTimes(t *testing.T) {
	t.Parallel()
	const paris, newYork, lordHowe, apia = "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"
	for _, c := range []struct {
		name, line, zone, from, want string
	}{
		{"every day", "0 2 * * *", "", "2026-01-01 02:00", "2026-01-02T02:00:00Z 2026-01-03T02:00:00Z"},
		{"with seconds", "*/20 0 2 * * *", "", "2026-01-01 02:00", "2026-01-01T02:00:20Z 2026-01-01T02:00:40Z 2026-01-02T02:00:00Z"},
		{"between two seconds", "* * * * * *", "", "2026-01-01T02:00:00.5Z", "2026-01-01T02:00:01Z 2026-01-01T02:00:02Z"},
		{"in a zone", "0 2 * * *", paris, "2026-01-01 02:00", "2026-01-02T02:00:00+01:00"},
		{"a name of a day", "0 9 * * THU", "", "2026-01-01 09:00", "2026-01-08T09:00:00Z"},
		{"29 February", "0 0 29 2 *", "", "2026-01-01 00:00", "2028-02-29T00:00:00Z"},
		{"weekly", "@weekly", "", "2026-01-01 00:00", "2026-01-04T00:00:00Z"},
		{"a period", "@every 90s", "", "1970-01-01 00:01", "1970-01-01T00:01:30Z 1970-01-01T00:03:00Z"},
		{"a period before 1970", "@every 90s", "", "1969-12-31 23:59", "1970-01-01T00:00:00Z"},
		{"a period in a zone goes on over a change", "@every 30m", newYork, "2026-03-08T06:29:00Z",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00"},

		{"02:30 on the day it does not exist", "30 2 * * *", newYork, "2026-03-07T12:00:00Z",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00"},
		{"the same, asked within the hour before", "30 2 * * *", newYork, "2026-03-08T06:59:59Z", "2026-03-08T03:00:00-04:00"},
		{"the same, asked at the change", "30 2 * * *", newYork, "2026-03-08T07:00:00Z", "2026-03-09T02:30:00-04:00"},
		{"several times that do not exist are one fire", "0,15,30 2 * * *", newYork, "2026-03-07T12:00:00Z",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00"},
		{"with one at the change it is one fire", "0 2,3 * * *", newYork, "2026-03-07T12:00:00Z",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00 2026-03-09T03:00:00-04:00"},
		{"not on another day", "30 2 * * MON", newYork, "2026-03-07T12:00:00Z", "2026-03-09T02:30:00-04:00"},
		{"01:30 on the day it comes twice", "30 1 * * *", newYork, "2026-10-31T12:00:00Z",
			"2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
		{"the same, asked between the two", "30 1 * * *", newYork, "2026-11-01T05:45:00Z", "2026-11-02T01:30:00-05:00"},
		{"the same in Paris", "30 2 * * *", paris, "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"each half hour goes on over the day with 25", "*/30 * * * *", newYork, "2026-11-01T04:59:00Z",
			"2026-11-01T01:00:00-04:00 2026-11-01T01:30:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T01:30:00-05:00 2026-11-01T02:00:00-05:00"},
		{"each half hour goes on over the day with 23", "*/30 * * * *", newYork, "2026-03-08T06:29:00Z",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00"},
		{"each hour at 15", "15 * * * *", paris, "2026-10-24T23:59:00Z",
			"2026-10-25T02:15:00+02:00 2026-10-25T02:15:00+01:00 2026-10-25T03:15:00+01:00"},
		{"half an hour is missing", "15 2 * * *", lordHowe, "2026-10-03T12:00:00Z", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"half an hour comes twice", "45 1 * * *", lordHowe, "2026-04-04T12:00:00Z", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"after a leap year that only rules describe", "0 0 1 1 *", newYork, "2044-12-31T23:59:59Z", "2045-01-01T00:00:00-05:00"},
		{"the last day of such a year", "0 */12 * * *", newYork, "2044-12-30T18:00:00Z",
			"2044-12-31T00:00:00-05:00 2044-12-31T12:00:00-05:00 2045-01-01T00:00:00-05:00 2045-01-01T12:00:00-05:00"},
		{"a day is missing", "0 12 * * *", apia, "2011-12-29T23:00:00Z", "2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := len(strings.Fields(c.want))
			var got []string
			for _, fire := range mustParse(t, c.line, c.zone).NextN(at(t, c.from), n) {
				got = append(got, fire.Format(time.RFC3339))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q in %q after %s:\n got %s\nwant %s", c.line, c.zone, c.from, strings.Join(got, " "), c.want)
			}
		})
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, zone, want string }{
		{"", "", "has 0 fields"},
		{"* * * *", "", "has 4 fields"},
		{"TZ=UTC", "", "in timezone"},
		{"CRON_TZ=UTC", "", "in timezone"},
		{"TZ=", "", "in timezone"},
		{"CRON_TZ=Europe/Berlin 0 2 * * *", "", "in timezone"},
		{"0 0 30 2 *", "", "never fires"},
		{"0 0 31 4,6,9,11 *", "", "never fires"},
		{"@every 1ns", "", "1s or more"},
		{"@every -5s", "", "1s or more"},
		{"@every 1500ms", "", "whole seconds"},
		{"@every 9000h", "", "at most a year"},
		{"@every", "", "want a duration"},
		{"@reboot", "", "want @yearly"},
		{"60 * * * *", "", "60"},
		{"*/0 * * * *", "", "step"},
		{"x * * * *", "", "x"},
		{"H(5-99) * * * *", "", "0-59"},
		{"H/61 * * * *", "", "1 to 60"},
		{"H/0 * * * *", "", "1 to 60"},
		{"H,5 * * * *", "", "want H, H/15"},
		{"H(99999999999999999999-1) * * * *", "", "0-59"},
		{"0 2 * * *", "Mars/Olympus", "is unknown"},
		{"0 2 * * *", "Local", "differs from machine to machine"},
		{"0 2 * * *", "../etc/passwd", "is unknown"},
	} {
		if _, err := schedule.Parse(c.line, c.zone, "x"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %v, want an error with %q", c.line, c.zone, err, c.want)
		}
	}
}

// A thousand schedules of a line with H spread, and each stays where it is.
func TestHashesSpread(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-01-01 00:00")
	perMinute := map[int]int{}
	for i := range 1000 {
		name := fmt.Sprint("report-", i)
		one, err := schedule.Parse("H 2 * * *", "", name)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := schedule.Parse("H 2 * * *", "", name)
		if !one.Next(start).Equal(again.Next(start)) {
			t.Fatalf("%s fires at %s and at %s", name, one.Next(start), again.Next(start))
		}
		perMinute[one.Next(start).Minute()]++
	}
	most := 0
	for _, n := range perMinute {
		most = max(most, n)
	}
	t.Logf("1000 schedules in %d minutes, at most %d in one", len(perMinute), most)
	if len(perMinute) != 60 || most > 40 {
		t.Errorf("1000 schedules in %d minutes, at most %d in one: want 60 minutes, at most 40", len(perMinute), most)
	}
	quarter, err := schedule.Parse("H/15 H(9-17) * * *", "", "a")
	if err != nil {
		t.Fatal(err)
	}
	fires := quarter.NextN(start, 5)
	if h := fires[0].Hour(); h < 9 || h > 17 || fires[1].Sub(fires[0]) != 15*time.Minute || fires[4].Sub(fires[0]) != 24*time.Hour {
		t.Errorf("H/15 H(9-17) fires at %v", fires)
	}
}

// Whatever the line and the zone are, fire times ascend, have whole seconds, and what is asked between two of them is the later one.
func FuzzRule(f *testing.F) {
	for _, line := range []string{"30 2 * * *", "*/7 * * * *", "TZ=UTC", "@every 90s", "H H(1-3) * * *", "0 0 29 2 *", "5 4 1,2,3 2 * 1", "@daily", "* * * * *", "?/3 1 2-4/2 * *", "0 22-2 L-3,15W NOV-FEB FRIL,MON#5,7", "cron(0 12 ? * 2#1 *)", "0 0 12 ? * 6L 2027", "0 9 LW * ?"} {
		for _, zone := range []string{"", "America/New_York", "Australia/Lord_Howe"} {
			f.Add(line, zone, int64(1772953200))
		}
	}
	f.Fuzz(func(t *testing.T, line, zone string, seconds int64) {
		const century = 100 * 366 * 24 * 3600
		start := time.Unix(seconds%century, 0)
		r, err := schedule.Parse(line, zone, "x")
		if err != nil {
			return
		}
		for range 20 {
			next := r.Next(start)
			if next.IsZero() {
				return
			}
			if !next.After(start) || next.Nanosecond() != 0 {
				t.Fatalf("%q in %q: after %s comes %s", line, zone, start, next)
			}
			for _, between := range []time.Time{next.Add(-time.Nanosecond), start.Add(next.Sub(start) / 2)} {
				if again := r.Next(between); !again.Equal(next) {
					t.Fatalf("%q in %q: after %s comes %s, after %s comes %s", line, zone, start, next, between, again)
				}
			}
			start = next
		}
	})
}
