package schedule

import (
	"fmt"
	"time"
)

// Timetable computes at which times a bucket sends and at which rate. It is immutable, and safe for concurrent use.
type Timetable struct {
	manual bool    // no windows: the bucket sends only when an operator drains it
	window *window // nil: the bucket sends at all times
	lines  []*line
}

// window is the drain windows.
type window struct {
	rule        *Rule
	length      time.Duration // 0: until the finish
	untilEmpty  bool
	finishAfter time.Duration // after the opening; 0 if finishAt is set, or there is no finish
	finishAt    *Rule
}

// line is a line of a rate calendar.
type line struct {
	from, to *Rule
	rate     Rate
	zone     string
}

// Stretch is a period when a bucket is closed, or sends at one rate.
type Stretch struct {
	From   time.Time
	Open   bool
	Rate   Rate      // zero: the bucket's own; also while it is closed
	Opened time.Time // the opening of the window that contains the stretch; zero: there are no windows, or it is closed

	UntilEmpty bool      // the window closes once the bucket is empty
	Finish     time.Time // by which all jobs are to be sent; zero: none is set
}

// Bounds of the result of Stretches.
const (
	MaxStretches = 64
	Ahead        = 3 * 24 * time.Hour
)

// Stretches returns the stretches from now on. Each ends where the next begins, and the last one at end; a zero end is never. They reach [Ahead]
// beyond now, unless there are more than [MaxStretches] of them.
func (t *Timetable) Stretches(now time.Time) (stretches []Stretch, end time.Time) {
	return t.Between(now, now.Add(Ahead), MaxStretches)
}

// Between returns the stretches from the one that contains from, at most most. Each ends where the next begins, and the last one at end; a zero
// end is never. They reach beyond until, unless there are more of them.
func (t *Timetable) Between(from, until time.Time, most int) (stretches []Stretch, end time.Time) {
	for at := from.Truncate(time.Second); ; {
		s, till := t.at(at)
		if n := len(stretches); n == 0 || !same(stretches[n-1], s) {
			if n == most {
				return stretches, at
			}
			s.From = at
			stretches = append(stretches, s)
		}
		if till.IsZero() {
			return stretches, time.Time{}
		}
		if at = till; at.After(until) {
			return stretches, at
		}
	}
}

// same reports whether two stretches that follow each other are one.
func same(a, b Stretch) bool {
	b.From = a.From
	return a.Open == b.Open && a.Rate == b.Rate && a.Opened.Equal(b.Opened) && a.UntilEmpty == b.UntilEmpty && a.Finish.Equal(b.Finish)
}

// at returns the stretch that contains a time, and when something may change next; zero: never.
func (t *Timetable) at(at time.Time) (s Stretch, till time.Time) {
	if t.manual {
		return Stretch{}, time.Time{}
	}
	s.Open = true
	if w := t.window; w != nil {
		if s, till = w.at(at); !s.Open {
			return s, till
		}
	}
	for _, l := range t.lines {
		covers, edge := l.at(at)
		if covers && s.Rate == (Rate{}) {
			s.Rate = l.rate
		}
		if !edge.IsZero() && (till.IsZero() || edge.Before(till)) {
			till = edge
		}
	}
	return s, till
}

// at returns the window that contains a time or, in a closed stretch, when the next one opens.
func (w *window) at(at time.Time) (s Stretch, till time.Time) {
	longest := w.length
	if longest == 0 {
		longest = w.finishAfter
	}
	if longest == 0 {
		longest = longestDay
	}
	next := w.rule.Next(at)
	opened := w.rule.last(at.Add(-longest), at)
	if opened.IsZero() {
		return s, next
	}
	finish, end := w.ends(opened)
	if !end.After(at) {
		return s, next
	}
	if !next.IsZero() && next.Before(end) {
		end = next
	}
	s = Stretch{Open: true, Opened: opened, UntilEmpty: w.untilEmpty}
	if finish.After(at) {
		s.Finish = finish
		return s, earlier(finish, end)
	}
	return s, end
}

// ends returns the finish of a window, zero if none is set, and its end.
func (w *window) ends(opened time.Time) (finish, end time.Time) {
	switch {
	case w.finishAfter > 0:
		finish = opened.Add(w.finishAfter)
	case w.finishAt != nil:
		finish = w.finishAt.Next(opened)
	}
	if w.length == 0 {
		return finish, finish
	}
	if end = opened.Add(w.length); finish.After(end) {
		finish = end
	}
	return finish, end
}

// Window returns the opening and the end of the first drain window that ends after a time; the window may contain it. Both are zero if there is
// none: the plan has no windows, or its cron line has no time in the next five years. A window that closes once the bucket is empty may close
// before its end.
func (t *Timetable) Window(after time.Time) (opened, end time.Time) {
	w := t.window
	if w == nil || t.manual {
		return time.Time{}, time.Time{}
	}
	if s, _ := w.at(after); s.Open {
		opened = s.Opened
	} else {
		opened = w.rule.Next(after)
	}
	if opened.IsZero() {
		return time.Time{}, time.Time{}
	}
	_, end = w.ends(opened)
	if next := w.rule.Next(opened); !next.IsZero() {
		end = earlier(end, next)
	}
	return opened, end
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// longestDay is longer than from any time of day to its next occurrence, also across clock changes.
const longestDay = 26 * time.Hour

// at reports whether a line covers a time, and when that changes.
func (l *line) at(at time.Time) (covers bool, till time.Time) {
	next := l.from.Next(at)
	began := l.from.last(at.Add(-longestDay), at)
	if began.IsZero() {
		return false, next
	}
	if end := l.end(began); end.After(at) {
		return true, end
	}
	return false, next
}

// end returns when a line that began at a time ends. If no clock shows either of its times, both are the moment of the change: then it ends when it
// begins.
func (l *line) end(began time.Time) time.Time { return l.to.Next(began.Add(-time.Second)) }

// Checks cover this many windows, over this much time.
const (
	checkedWindows = 800
	checkedTime    = 400 * 24 * time.Hour
)

// checkFrom is a day without special events. Clock changes of every zone come after it.
var checkFrom = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)

// checkWindows returns an error if a window is longer than its period.
func (t *Timetable) checkWindows() error {
	if t.window == nil {
		return nil
	}
	limit := checkFrom.Add(checkedTime)
	opened := t.window.rule.Next(checkFrom)
	for range checkedWindows {
		next := t.window.rule.Next(opened)
		if next.IsZero() || opened.After(limit) {
			return nil
		}
		if _, end := t.window.ends(opened); end.After(next) {
			return fmt.Errorf("drain.for: %s: is longer than the time to the next window: one opens on %s, the next %s later",
				end.Sub(opened), opened.Format("Mon 2006-01-02 15:04:05 MST"), next.Sub(opened))
		}
		opened = next
	}
	return nil
}

// checkFinish returns an error if a finish is not within the window, or leaves no time for a job.
func (t *Timetable) checkFinish(d *Drain, rate Rate) error {
	if t.window == nil || d.FinishBy == "" {
		return nil
	}
	opened := t.window.rule.Next(checkFrom)
	if t.window.finishAt != nil && t.window.length > 0 && t.window.finishAt.Next(opened).After(opened.Add(t.window.length)) {
		return fmt.Errorf("drain.finish_by: %q: is after the window's end: a window opens at %s and lasts %s",
			d.FinishBy, opened.Format("15:04 MST"), t.window.length)
	}
	finish, _ := t.window.ends(opened)
	for _, l := range t.lines { // a line may be faster than the bucket's own rate
		if l.rate.perSecond() > rate.perSecond() {
			rate = l.rate
		}
	}
	if window := finish.Sub(opened); rate.Count > 0 && window.Seconds()*rate.perSecond() < 1 {
		return fmt.Errorf("drain.finish_by: %q: no rate is possible: at %d in %s no job leaves within %s", d.FinishBy, rate.Count, rate.Per, window)
	}
	return nil
}

func (r Rate) perSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// checkLines returns an error if two lines of the calendar overlap. Lines of one zone repeat each week. Clocks of two zones change on different
// days, so the check covers a year.
func (t *Timetable) checkLines() error {
	for i, a := range t.lines {
		for j, b := range t.lines[:i] {
			until := checkFrom.AddDate(0, 0, 16) //nolint:mnd // two weeks, and a day at each end
			if a.zone != b.zone {
				until = checkFrom.Add(checkedTime)
			}
			if at := overlap(a, b, until); !at.IsZero() {
				return fmt.Errorf("calendar[%d].from: overlaps with calendar[%d], as on %s: leave each time to one line", i, j, at.Format("Mon 2006-01-02 15:04 MST"))
			}
		}
	}
	return nil
}

// overlap returns the first time that two lines both cover, zero if there is none.
func overlap(a, b *line, until time.Time) time.Time {
	for at := checkFrom; at.Before(until); {
		inA, nextA := a.at(at)
		inB, nextB := b.at(at)
		if inA && inB {
			return at
		}
		at = earlier(nextA, nextB)
	}
	return time.Time{}
}
