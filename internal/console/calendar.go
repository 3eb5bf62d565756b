package console

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
)

const (
	daysShown    = 7
	minutesOfDay = 24 * 60 // the width of the picture of a day
	dayFormat    = "2006-01-02"
)

// calendarContent holds when a bucket is open in a week, in UTC.
type calendarContent struct {
	*httpapi.Timetable

	Days         []day
	Rows         []stretchRow
	Before, Next string // the days with which the weeks around it begin
	IsCut        bool   // there are too many stretches or fires for a week
	IsAlways     bool   // it is open all the time at one rate, and no schedule fires
}

// day is a day of UTC as a picture: its bars, and its marks, by minutes.
type day struct {
	At    time.Time
	Open  []dayBar
	Fires []dayMark
	Text  string // the same in words
}

type dayBar struct {
	X, Width int
	Text     string
}

type dayMark struct {
	X    int
	Text string
}

// stretchRow is a row of the table with the content of the pictures.
type stretchRow struct {
	httpapi.OpenStretch

	Fires []httpapi.ScheduleFire
}

// calendarPage shows the delivery windows and the schedules of a bucket, from a day on that the address names, or from today.
func calendarPage(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	from := time.Now().UTC().Truncate(24 * time.Hour)
	if text := v.r.FormValue("from"); text != "" {
		var err error
		if from, err = time.Parse(dayFormat, text); err != nil {
			v.fail(&apiError{Status: http.StatusBadRequest, Detail: "from: want a day such as 2026-03-01"})
			return
		}
	}
	until := from.AddDate(0, 0, daysShown)
	table, err := call(v, httpapi.ShowTimetable, httpapi.TimetableQuery{BucketName: name, From: from, Until: until})
	if err != nil {
		v.fail(err)
		return
	}
	page := calendarContent{
		Timetable: table, Before: from.AddDate(0, 0, -daysShown).Format(dayFormat), Next: until.Format(dayFormat), IsCut: table.Until.Before(until),
		IsAlways: len(table.Fires) == 0 && len(table.Stretches) == 1 && table.Stretches[0].Open,
	}
	for at := from; at.Before(table.Until); at = at.AddDate(0, 0, 1) {
		page.Days = append(page.Days, dayOf(at, table))
	}
	for _, stretch := range table.Stretches {
		page.Rows = append(page.Rows, stretchRow{stretch, firesBetween(table.Fires, stretch.From, stretch.Until)})
	}
	v.render(http.StatusOK, "timetable", "Week of "+name.Bucket, &page)
}

// dayOf is one day of a timetable.
func dayOf(at time.Time, table *httpapi.Timetable) day {
	d := day{At: at}
	end := at.AddDate(0, 0, 1)
	minute := func(t time.Time) int { return min(max(int(t.Sub(at)/time.Minute), 0), minutesOfDay) }
	var texts []string
	for _, s := range table.Stretches {
		if !s.Open || !s.Until.After(at) || !s.From.Before(end) {
			continue
		}
		text := clock(s.From, at) + "–" + clock(s.Until, at) + " " + s.Rate
		if s.UntilEmpty {
			text += " until empty"
		}
		x := minute(s.From)
		d.Open = append(d.Open, dayBar{x, max(minute(s.Until)-x, 1), text})
		texts = append(texts, text)
	}
	text := "open " + strings.Join(texts, ", ")
	if len(texts) == 0 {
		text = "closed"
	}
	fires := firesBetween(table.Fires, at, end)
	for _, fire := range fires {
		x := minute(fire.At)
		if n := len(d.Fires); n > 0 && d.Fires[n-1].X == x { // the picture has no more room
			d.Fires[n-1].Text += ", " + fire.Schedule
			continue
		}
		d.Fires = append(d.Fires, dayMark{x, clock(fire.At, at) + " " + fire.Schedule})
	}
	if len(fires) > 0 {
		text += "; " + counted(len(fires), "fire")
	}
	d.Text = text
	return d
}

// clock is a time of a day, which may end at 24:00.
func clock(t, day time.Time) string {
	if !t.Before(day.AddDate(0, 0, 1)) {
		return "24:00"
	}
	if t.Before(day) {
		return "00:00"
	}
	return t.UTC().Format("15:04")
}

func firesBetween(fires []httpapi.ScheduleFire, from, until time.Time) (list []httpapi.ScheduleFire) {
	for _, fire := range fires {
		if !fire.At.Before(from) && fire.At.Before(until) {
			list = append(list, fire)
		}
	}
	return list
}

// State returns the bucket's rate, or that it is closed.
func (r stretchRow) State() string {
	text := cmp.Or(r.Rate, "closed")
	if r.UntilEmpty {
		text += " until empty"
	}
	return text
}
