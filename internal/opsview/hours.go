package opsview

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// Hours says whether a bucket dispatches now, and when that changes.
type Hours struct {
	Open bool `json:"open"`

	// The rate now or, of a closed bucket, when it opens.
	Rate string `json:"rate"`

	// When that changes. Absent if it does not.
	Until *time.Time `json:"until,omitempty"`

	// When it is open next, which may be now. Absent: not before an operator drains it.
	Opens *time.Time `json:"opens,omitempty"`

	// The `empty` of the bucket.
	Empty *time.Time `json:"empty,omitempty"`

	// Why jobs will remain at the finish, as `left_at_finish` of the verdict says: the needed rate is above the allowed rate, or something keeps jobs,
	// which `blocked` names. Absent: none will.
	Late string `json:"late,omitempty" jsonschema:"enum=rate,enum=behind"`

	// When jobs are to be sent, of a closed bucket in its next window.
	Finish *time.Time `json:"finish,omitempty"`

	// Jobs that are to be sent by then.
	FinishJobs int64 `json:"finish_jobs,omitempty"`
}

// HoursOf returns the view of a bucket's delivery windows, nil if it has none.
func HoursOf(h *shaper.Hours) *Hours {
	if h == nil {
		return nil
	}
	return &Hours{
		Open: h.Open, Rate: rateText(h.Rate), Until: moment(h.Until), Opens: moment(h.Opens),
		Finish: moment(h.Finish), FinishJobs: h.FinishJobs,
	}
}

// rateText formats a rate as in the configuration. An even rate until a finish has odd periods: it uses the shortest unit in which the rate is one or
// more.
func rateText(r admission.Rate) string {
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if r.Per == unit {
			return r.String()
		}
	}
	perSecond := r.PerSecond()
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{1, "s"}, {60, "m"}, {3600, "h"}} {
		if perSecond*unit.seconds >= 1 {
			return rounded(perSecond*unit.seconds) + "/" + unit.name
		}
	}
	const day = 86400
	return rounded(perSecond*day) + "/d"
}

// rounded formats a number with at most two decimals.
func rounded(x float64) string { return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) }

// Text returns one line that says whether the bucket dispatches.
func (h *Hours) Text(now time.Time) string {
	switch {
	case h.Open && h.Until != nil && h.Finish != nil && h.Finish.Equal(*h.Until):
		return fmt.Sprintf("open at %s, until the finish %s", h.Rate, Relative(*h.Until, now))
	case h.Open && h.Until != nil:
		return fmt.Sprintf("open at %s, changes %s", h.Rate, Relative(*h.Until, now))
	case h.Open:
		return "open at " + h.Rate
	case h.Opens != nil && h.Finish != nil:
		return fmt.Sprintf("closed: opens %s, at %s until the finish %s", Relative(*h.Opens, now), h.Rate, Relative(*h.Finish, now))
	case h.Opens != nil:
		return fmt.Sprintf("closed: opens %s, at %s", Relative(*h.Opens, now), h.Rate)
	}
	return "closed until an operator drains it"
}

// PausedText is Text of a bucket that is paused: it sends nothing until it is resumed.
func (h *Hours) PausedText(now time.Time) string {
	if !h.Open {
		return h.Text(now) + ", and paused"
	}
	text := "paused: it would be open at " + h.Rate
	if h.Until != nil {
		text += ", to change " + Relative(*h.Until, now)
	}
	return text
}

// Drain is a drain that an operator started.
type Drain struct {
	ID    string     `json:"id"`
	By    string     `json:"by"`
	State string     `json:"state" jsonschema:"enum=running,enum=done,enum=stopped"`
	Since time.Time  `json:"since"`
	Ended *time.Time `json:"ended,omitempty"`

	// Absent if it is not slower than the bucket.
	Rate string `json:"rate,omitempty"`
	Max  int64  `json:"max,omitempty"`

	// Permits that were handed out.
	Departed   int64 `json:"departed"`
	UntilEmpty bool  `json:"until_empty"`
}

// DrainOf returns the view of a drain, nil without one.
func DrainOf(d *shaper.DrainRun) *Drain {
	if d == nil {
		return nil
	}
	view := &Drain{
		ID: d.ID, By: d.By, State: string(d.State), Since: d.Since.UTC(), Ended: moment(d.Ended), Max: d.Max, Departed: d.Departed, UntilEmpty: d.UntilEmpty,
	}
	if !d.Rate.IsZero() {
		view.Rate = d.Rate.String()
	}
	return view
}

// Text describes a drain in one line, safe to show.
func (d *Drain) Text(now time.Time) string {
	text := fmt.Sprintf("%s, %d departed, asked for %s by %s", d.State, d.Departed, Relative(d.Since, now), d.By)
	if d.Max > 0 {
		text = fmt.Sprintf("%s, %d of %d departed, asked for %s by %s", d.State, d.Departed, d.Max, Relative(d.Since, now), d.By)
	}
	return Line(text, 200)
}
