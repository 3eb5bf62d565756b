package config

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/schedule"
)

// Drain windows and calendars come to the bucket as they are written, with the defaults of what is not, and are printed so that they read
// back the same.
func TestWindows(t *testing.T) {
	t.Parallel()
	const text = `
[[buckets]]
name = "a"
rate = "11/s"
webhook.url = "https://example.com/"
[buckets.drain]
cron = "0 2 * * *"
for = "4h"
finish_by = "05:30"
[[buckets.calendar]]
from = "22:00"
to = "06:00"
days = "mon-fri"
timezone = "Europe/Paris"
rate = "200/s"
[[buckets.calendar]]
from = "12:00"
to = "13:00"
rate = "3/m"
[[buckets]]
name = "b"
rate = "11/s"
webhook.url = "https://example.com/"
drain.manual = true
[[buckets]]
name = "c"
rate = "11/s"
webhook.url = "https://example.com/"
`
	c := mustLoad(t, text)
	var printed bytes.Buffer
	must.OK(t, c.WriteTOML(&printed))
	for what, c := range map[string]*Config{"read": c, "printed and read": mustLoad(t, printed.String())} {
		a, b, plain := c.Buckets[0], c.Buckets[1], c.Buckets[2]
		want := schedule.Drain{Cron: "0 2 * * *", Timezone: "UTC", For: 4 * time.Hour, Until: schedule.UntilWindow, FinishBy: "05:30"}
		must.Equal(t, cmp.Diff(&want, a.Drain), "", "%s: drain (-want +got):", what)
		var lines []string
		for _, line := range a.Calendar {
			lines = append(lines, strings.Join([]string{line.From, line.To, line.Days, line.Timezone, line.Rate.String()}, " "))
		}
		must.Equal(t, strings.Join(lines, ", "), "22:00 06:00 mon-fri Europe/Paris 200/s, 12:00 13:00  UTC 3/m", "%s: calendar", what)
		if b.Drain == nil || !b.Drain.Manual || b.Calendar != nil || plain.Drain != nil || !plain.Plan().IsZero() {
			t.Errorf("%s: %+v, %+v", what, b.Drain, plain.Drain)
		}
	}
}
