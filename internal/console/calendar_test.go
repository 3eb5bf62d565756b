package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// A week has the windows and fires of each day of UTC as bars and marks, and in words: also where the clocks of its time zone change.
func TestCalendar(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "nightly", Payload: []byte("1")}) // so that Redis knows its schedule
	page := v.get("/console/buckets/nightly/timetable?from=2027-03-25")
	page.want(t, http.StatusOK, "UTC",
		`<th scope="row">Sat 2027-03-27</th>`, `aria-label="open 00:00–04:00 1/h; 1 fire"`, `<rect class="open" x="0" y="6" width="240" height="12"><title>00:00–04:00 1/h</title></rect>`, `<path class="fire" d="M90 2v20"><title>01:30 half-past</title></path>`,
		// On Sunday no clock shows 02:00 to 03:00: the calendar holds from 01:00 UTC on, when the clocks show 03:00, and so does the fire.
		`aria-label="open 00:00–01:00 1/h, 01:00–02:30 5/h, 02:30–04:00 1/h, 23:00–24:00 1/h; 1 fire"`, `<path class="fire" d="M60 2v20"><title>01:00 half-past</title></path>`,
		// From then on it opens an hour earlier by UTC, on the evening before, as 01:00 there is 23:00 here.
		`aria-label="open 00:00–03:00 1/h, 23:00–24:00 1/h; 1 fire"`, `<rect class="open" x="1380" y="6" width="60" height="12">`, `<path class="fire" d="M30 2v20"><title>00:30 half-past</title></path>`,
		`datetime="2027-03-28T01:00:00Z"`, "<td>5/h</td>", "<td>closed</td>", `href="?from=2027-03-18"`, `href="?from=2027-04-01"`)
	must.Equal(t, strings.Count(page.text, `<svg class="day"`), 7, "days")
	// On this Sunday the clocks show 02:00 to 03:00 twice: the calendar holds for both, and the schedule fires in the first.
	v.get("/console/buckets/nightly/timetable?from=2027-10-28").want(t, http.StatusOK, `<th scope="row">Sun 2027-10-31</th>`, `aria-label="open 00:00–03:00 5/h; 1 fire"`)
	v.get("/console/buckets/letters/timetable").want(t, http.StatusOK, "It is open at all times, and no schedule fires", "dispatcher schedule set", `aria-label="open 00:00–24:00 1/h"`)
	v.get("/console/buckets/none/timetable").want(t, http.StatusNotFound, "none")
	v.get("/console/buckets/nightly/timetable?from=soon").want(t, http.StatusBadRequest, "want a day")
	v.get("/console/buckets/nightly").want(t, http.StatusOK, `href="nightly/timetable"`)
	v.get("/console/schedules").want(t, http.StatusOK, `href="buckets/nightly/timetable"`)
}
