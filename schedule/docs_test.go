package schedule_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The table of docs/schedules.md has what happens in Paris on the days on which clocks change.
func TestTableOfClockChanges(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\d\\d:\\d\\d[^|]*) \\| (\\d\\d:\\d\\d[^|]*) \\|$")
	times := regexp.MustCompile(`\d\d:\d\d`)
	text, err := os.ReadFile("../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	found := row.FindAllStringSubmatch(string(text), -1)
	if len(found) != 4 {
		t.Fatalf("%d rows, want 4", len(found))
	}
	for _, cells := range found {
		line := cells[1]
		for day, cell := range map[string]string{"2026-03-29": cells[2], "2026-10-25": cells[3]} {
			want := times.FindAllString(cell, -1)
			got := firesOn(t, line, day, want[0])
			if strings.ContainsAny(line, "/@") && len(got) > len(want) { // it goes on all day
				got = got[:len(want)]
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s on %s: at %q, and the page says %q", line, day, got, want)
			}
		}
	}
}

// firesOn returns the times of day in Paris at which a line fires on a day, from the first time that is first on.
func firesOn(t *testing.T, line, day, first string) (times []string) {
	t.Helper()
	r := mustParse(t, line, "Europe/Paris")
	for fire := at(t, day+"T00:00:00Z").Add(-3 * time.Hour); ; {
		fire = r.Next(fire)
		if date := fire.Format(time.DateOnly); date > day {
			return times
		} else if clock := fire.Format("15:04"); date == day && (len(times) > 0 || clock == first) {
			times = append(times, clock)
		}
	}
}
