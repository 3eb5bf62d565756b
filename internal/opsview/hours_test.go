package opsview_test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

func TestHours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 1, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		hours        shaper.Hours
		text, paused string
	}{
		{shaper.Hours{Open: true, Rate: admission.Rate{Count: 4, Per: time.Minute}}, "open at 4/m", "paused: it would be open at 4/m"},
		{shaper.Hours{Open: true, Rate: admission.Rate{Count: 601, Per: 9_812_345 * time.Microsecond}}, "open at 61.25/s", "paused: it would be open at 61.25/s"},
		{
			shaper.Hours{Open: true, Rate: admission.Rate{Count: 13, Per: 239 * time.Second}, Until: now.Add(time.Hour)},
			"open at 3.26/m, changes in 1h", "paused: it would be open at 3.26/m, to change in 1h",
		},
		{
			shaper.Hours{Open: true, Rate: admission.Rate{Count: 13, Per: 239 * time.Second}, Until: now.Add(time.Hour), Finish: now.Add(time.Hour)},
			"open at 3.26/m, until the finish in 1h", "paused: it would be open at 3.26/m, to change in 1h",
		},
		{
			shaper.Hours{Rate: admission.Rate{Count: 5, Per: 4 * time.Hour}, Opens: now.Add(time.Hour)},
			"closed: opens in 1h, at 1.25/h", "closed: opens in 1h, at 1.25/h, and paused",
		},
		{
			shaper.Hours{Rate: admission.Rate{Count: 11, Per: 4 * time.Hour}, Opens: now.Add(time.Hour), Finish: now.Add(5 * time.Hour)},
			"closed: opens in 1h, at 2.75/h until the finish in 5h", "closed: opens in 1h, at 2.75/h until the finish in 5h, and paused",
		},
		{shaper.Hours{Rate: admission.Rate{Count: 1, Per: 48 * time.Hour}}, "closed until an operator drains it", "closed until an operator drains it, and paused"},
	} {
		h := opsview.HoursOf(&c.hours)
		if got, paused := h.Text(now), h.PausedText(now); got != c.text || paused != c.paused {
			t.Errorf("%+v: %q and %q, want %q and %q", c.hours, got, paused, c.text, c.paused)
		}
	}
}
