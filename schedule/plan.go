package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Plan says when a bucket sends, and how fast: its drain windows and its rate calendar. It is a description: Timetable compiles it.
type Plan struct {
	Drain    *Drain `json:"drain,omitempty"` // nil: the bucket sends at all times
	Calendar []Line `json:"calendar,omitempty"`
}

// Drain says when a bucket sends. Outside its windows it collects jobs.
type Drain struct {
	Cron     string        `json:"cron,omitempty" setting:"cron"`         // when a window opens: see [Parse]
	Timezone string        `json:"timezone,omitempty" setting:"timezone"` // of Cron and FinishBy; "" means UTC
	For      time.Duration `json:"for,omitempty" setting:"for"`           // how long a window is open; 0: until FinishBy
	Until    Until         `json:"until,omitempty" setting:"until"`       // "" means window
	FinishBy string        `json:"finish_by,omitempty" setting:"finish_by"`
	Manual   bool          `json:"manual,omitempty" setting:"manual"` // there are no windows: the bucket sends only when an operator drains it
}

// Until says what closes a window.
type Until string

// The values of Until.
const (
	UntilWindow Until = "window" // its end
	UntilEmpty  Until = "empty"  // its end, or earlier: nothing waits and nothing is in flight
)

// Line is an entry of a rate calendar: between From and To the bucket has another rate.
type Line struct {
	From     string `json:"from"`               // a time of day, such as "22:00"
	To       string `json:"to"`                 // the time of day that comes next after From
	Days     string `json:"days,omitempty"`     // on which From is, such as "mon-fri" or "sat,sun"; "" means all
	Timezone string `json:"timezone,omitempty"` // "" means UTC
	Rate     Rate   `json:"rate"`
}

// Rate is a number of departures in a period. The zero value means the rate of the bucket.
type Rate struct {
	Count int64         `json:"count"`
	Per   time.Duration `json:"per"`
}

// Bounds of a plan.
const (
	MaxLines  = 64
	minWindow = time.Second
	maxWindow = 366 * 24 * time.Hour
)

// IsZero reports whether the plan is empty: the bucket sends at all times, at its own rate.
func (p Plan) IsZero() bool { return p.Drain == nil && len(p.Calendar) == 0 }

// Timetable compiles the plan of a bucket. rate is the bucket's rate, and name seeds H in a cron line. The error joins all faults: each begins
// with the key of the configuration, such as "drain.cron" or "calendar[1].from".
func (p Plan) Timetable(name string, rate Rate) (*Timetable, error) {
	var t Timetable
	var errs []error
	if p.Drain != nil {
		if err := t.addDrain(*p.Drain, name); err != nil {
			errs = append(errs, err)
		}
	}
	if len(p.Calendar) > MaxLines {
		errs = append(errs, fmt.Errorf("calendar: has %d lines: want at most %d", len(p.Calendar), MaxLines))
	} else {
		for i, line := range p.Calendar {
			compiled, err := line.compile(fmt.Sprintf("calendar[%d].", i))
			errs = append(errs, err)
			t.lines = append(t.lines, compiled)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	errs = append(errs, t.checkWindows(), t.checkFinish(p.Drain, rate), t.checkLines())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &t, nil
}

// Warnings lists parts of a valid plan that may not mean what was intended. Each begins with the key of the configuration. name seeds H.
func (p Plan) Warnings(name string) []string {
	var warnings []string
	if d := p.Drain; d != nil && d.Cron != "" {
		if rule, err := Parse(d.Cron, d.Timezone, name); err == nil {
			for _, text := range rule.Warnings() {
				warnings = append(warnings, "drain."+text)
			}
		}
	}
	for i, line := range p.Calendar {
		if text := zoneWarning(line.Timezone); text != "" {
			warnings = append(warnings, fmt.Sprintf("calendar[%d].%s", i, text))
		}
	}
	return warnings
}

func (t *Timetable) addDrain(d Drain, name string) error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("drain.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if d.Until != "" && d.Until != UntilWindow && d.Until != UntilEmpty {
		fail("until", "%q: want %s or %s", d.Until, UntilWindow, UntilEmpty)
	}
	if d.Manual {
		for _, other := range []struct {
			key string
			set bool
		}{{"cron", d.Cron != ""}, {"for", d.For != 0}, {"finish_by", d.FinishBy != ""}, {"until", d.Until == UntilEmpty}} {
			if other.set {
				fail(other.key, "is given with manual, which has no windows: leave out one of the two")
			}
		}
		t.manual = true
		return errors.Join(errs...)
	}
	if d.Cron == "" {
		fail("cron", `is missing: say when a window opens, such as "0 2 * * *", or set manual = true`)
		return errors.Join(errs...)
	}
	rule, err := Parse(d.Cron, d.Timezone, name)
	if err != nil {
		key, reason, _ := strings.Cut(err.Error(), " ")
		fail(key, "%s", reason)
		return errors.Join(errs...)
	}
	w := &window{rule: rule, length: d.For, untilEmpty: d.Until == UntilEmpty}
	switch {
	case d.For == 0 && d.FinishBy == "":
		fail("for", `is missing: say how long a window is open, such as "4h"`)
	case d.For != 0 && (d.For < minWindow || d.For > maxWindow || d.For%time.Second != 0):
		fail("for", "%s: want whole seconds, 1s to 8784h", d.For)
	}
	if err := w.finishBy(d.FinishBy, d.Timezone); err != nil {
		fail("finish_by", "%s", err)
	}
	t.window = w
	return errors.Join(errs...)
}

var timeOfDay = regexp.MustCompile(`^([01]\d|2[0-3]):([0-5]\d)$`)

// daily returns the rule of a time of day, on the days of a cron field.
func daily(text, days, zone string) (*Rule, error) {
	match := timeOfDay.FindStringSubmatch(text)
	if match == nil {
		return nil, fmt.Errorf(`%q: want a time of day from "00:00" to "23:59"`, text)
	}
	return Parse(fmt.Sprintf("%s %s * * %s", match[2], match[1], days), zone, "")
}

// finishBy reads a time of day, or a time from the opening.
func (w *window) finishBy(text, zone string) error {
	if text == "" {
		return nil
	}
	if after, err := time.ParseDuration(text); err == nil {
		if after < minWindow || after > maxWindow || after%time.Second != 0 {
			return fmt.Errorf("%q: want whole seconds after the opening, 1s to 8784h", text)
		}
		if w.length > 0 && after > w.length {
			return fmt.Errorf("%q: is after the window's end, %s after its opening", text, w.length)
		}
		w.finishAfter = after
		return nil
	}
	if !timeOfDay.MatchString(text) {
		return fmt.Errorf(`%q: want a time of day such as "06:00", or a time from the opening such as "3h30m"`, text)
	}
	var err error
	w.finishAt, err = daily(text, "*", zone)
	return err
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// daysField returns the field of a cron line for days such as "mon-fri,sun".
func daysField(text string) (string, error) {
	if text == "" || text == "*" {
		return "*", nil
	}
	var numbers []string
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, to := slices.Index(days, first), slices.Index(days, last)
		if from < 0 || to < 0 {
			return "", fmt.Errorf(`%q: want days such as "mon-fri" or "sat,sun"`, text)
		}
		for day := from; ; day = (day + 1) % len(days) {
			numbers = append(numbers, strconv.Itoa(day))
			if day == to {
				break
			}
		}
	}
	slices.Sort(numbers)
	return strings.Join(slices.Compact(numbers), ","), nil
}

func (l Line) compile(prefix string) (*line, error) {
	var errs []error
	fail := func(key string, err error) { errs = append(errs, fmt.Errorf("%s%s: %w", prefix, key, err)) }
	if _, err := location(l.Timezone); err != nil {
		_, reason, _ := strings.Cut(err.Error(), " ")
		fail("timezone", errors.New(reason))
		return nil, errors.Join(errs...)
	}
	field, err := daysField(l.Days)
	if err != nil {
		fail("days", err)
		field = "*"
	}
	from, err := daily(l.From, field, l.Timezone)
	if err != nil {
		fail("from", err)
	}
	to, err := daily(l.To, "*", l.Timezone)
	if err != nil {
		fail("to", err)
	}
	if l.From == l.To && len(errs) == 0 {
		fail("to", fmt.Errorf("%q: is the same as from: want another time of day", l.To))
	}
	if l.Rate.Count <= 0 || l.Rate.Per <= 0 {
		fail("rate", errors.New(`is missing: want a rate such as "200/s"`))
	}
	return &line{from: from, to: to, rate: l.Rate, zone: l.Timezone}, errors.Join(errs...)
}
