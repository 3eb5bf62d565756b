package config

import (
	"slices"
	"strings"
	"testing"
)

// config check and the log name cron lines and time zones that may mean otherwise than was meant.
func TestWarningsOfCron(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[[buckets]]
name = "night"
rate = "1/s"
webhook.url = "https://example.com/"
[buckets.drain]
cron = "0 22 1-7 * MON"
timezone = "EST"
for = "1h"
[[schedules]]
name = "report"
bucket = "night"
cron = "0 9 1 * FRIL"
timezone = "Etc/GMT+2"
payload = "1"
[[schedules]]
name = "fine"
bucket = "night"
cron = "0 9 * * MON#1"
timezone = "America/New_York"
payload = "1"
`)
	const either = "cron: names a day of month and a day of week: either day fires; the first Monday is MON#1 in the day of week, with * in the day of month"
	for _, want := range []string{
		`buckets[0] "night": drain.` + either,
		`buckets[0] "night": drain.timezone "EST": has no summer time: for clocks that change, use America/New_York`,
		`schedules "report": ` + either,
		`schedules "report": timezone "Etc/GMT+2": is UTC-2: its sign is the other way round; and it has no summer time`,
	} {
		if !slices.Contains(c.Warnings(), want) {
			t.Errorf("%q lacks %q", c.Warnings(), want)
		}
	}
	if all := strings.Join(c.Warnings(), "\n"); strings.Contains(all, "fine") {
		t.Errorf("a warning of what is clear: %s", all)
	}
}
