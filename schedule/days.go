package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// calendar computes when a cron line fires in UTC, where clocks never change.
type calendar struct {
	spec *cron.SpecSchedule
	days *namedDays         // nil: spec says it all
	time *cron.SpecSchedule // of a line with days: spec for every day
}

// namedDays are the days that no number names in every month.
type namedDays struct {
	fromEnd     []int     // L-3: 3 days before the last one
	nearest     []int     // 15W: the working day that is nearest to the 15th, within the month
	lastWorking bool      // LW
	last        uint64    // 5L: the last Friday
	nth         [6]uint64 // MON#1: nth[1] has Monday
	byDay       bool      // the day of month has some
	byWeekday   bool      // the day of week has some
}

var (
	fromEndForm = regexp.MustCompile(`^L(?:-(\d{1,2}))?$`)
	nearestForm = regexp.MustCompile(`^(\d{1,2})W$`)
	lastForm    = regexp.MustCompile(`^([0-7]|[A-Z]{3})L$`)
	nthForm     = regexp.MustCompile(`^([0-7]|[A-Z]{3})#(\d+)$`)
)

// take removes the parts that name such days from a day field, and returns the others.
func (d *namedDays) take(field int, text string) (rest string, err error) {
	var others []string
	for part := range strings.SplitSeq(text, ",") {
		taken, err := d.takeDay, error(nil)
		if field == weekdayField {
			taken = d.takeWeekday
		}
		ok := false
		if ok, err = taken(strings.ToUpper(part)); err != nil {
			return "", fmt.Errorf("%s %q: %w", kinds[field].name, text, err)
		}
		if !ok {
			others = append(others, part)
		}
	}
	return strings.Join(others, ","), nil
}

func (d *namedDays) takeDay(part string) (bool, error) {
	if part == "LW" {
		d.lastWorking, d.byDay = true, true
		return true, nil
	}
	if match := fromEndForm.FindStringSubmatch(part); match != nil {
		n, _ := strconv.Atoi(match[1]) // 0 of L
		if n > 30 {
			return false, fmt.Errorf("%q: want L-1 to L-30", part)
		}
		d.fromEnd, d.byDay = append(d.fromEnd, n), true
		return true, nil
	}
	if match := nearestForm.FindStringSubmatch(part); match != nil {
		n, _ := strconv.Atoi(match[1])
		if n < 1 || n > 31 {
			return false, fmt.Errorf("%q: want 1W to 31W", part)
		}
		d.nearest, d.byDay = append(d.nearest, n), true
		return true, nil
	}
	return false, nil
}

func (d *namedDays) takeWeekday(part string) (bool, error) {
	if part == "L" {
		return false, fmt.Errorf("%q needs a day: FRIL is the last Friday of a month", part)
	}
	if match := lastForm.FindStringSubmatch(part); match != nil {
		day, err := kinds[weekdayField].value(match[1])
		d.last, d.byWeekday = d.last|1<<day, true
		return err == nil, err
	}
	if match := nthForm.FindStringSubmatch(part); match != nil {
		day, err := kinds[weekdayField].value(match[1])
		n, _ := strconv.Atoi(match[2])
		if err == nil && (n < 1 || n > 5) {
			err = fmt.Errorf("%q: a month has a first to a fifth %s: want #1 to #5", part, match[1])
		}
		if err != nil {
			return false, err
		}
		d.nth[n], d.byWeekday = d.nth[n]|1<<day, true
		return true, nil
	}
	return false, nil
}

// parseCalendar reads six fields.
func parseCalendar(fields []string) (*calendar, error) {
	var values [fieldCount]uint64
	days := &namedDays{}
	for i, text := range fields {
		rest := text
		if i == dayField || i == weekdayField {
			if text == "?" {
				rest = "*"
			}
			var err error
			if rest, err = days.take(i, rest); err != nil {
				return nil, err
			}
		}
		if rest == "" && text != "" {
			continue
		}
		var err error
		if values[i], err = kinds[i].parse(rest); err != nil {
			return nil, err
		}
	}
	spec := &cron.SpecSchedule{
		Second: values[secondField], Minute: values[minuteField], Hour: values[hourField],
		Dom: values[dayField], Month: values[monthField], Dow: values[weekdayField], Location: time.UTC,
	}
	c := &calendar{spec: spec}
	if days.byDay || days.byWeekday {
		everyDay := *spec
		everyDay.Dom, everyDay.Dow = kinds[dayField].between(1, 31, 1)|starBit, kinds[weekdayField].between(0, 6, 1)|starBit
		c.days, c.time = days, &everyDay
	}
	return c, nil
}

// next returns the first fire time after t; zero if there is none in the five years after t.
func (c *calendar) next(t time.Time) time.Time {
	if c.days == nil {
		return c.spec.Next(t)
	}
	const years = 5
	for limit := t.AddDate(years, 0, 0); ; {
		fire := c.time.Next(t)
		if fire.IsZero() || fire.After(limit) {
			return time.Time{}
		}
		if c.names(fire) {
			return fire
		}
		y, m, d := fire.Date()
		t = time.Date(y, m, d+1, 0, 0, -1, 0, time.UTC)
	}
}

// names reports whether the day fields name the day of t.
func (c *calendar) names(t time.Time) bool {
	day, weekday := has(c.spec.Dom, t.Day()) || c.days.day(t), has(c.spec.Dow, int(t.Weekday())) || c.days.weekday(t)
	if restricts(c.spec.Dom) && restricts(c.spec.Dow) {
		return day || weekday
	}
	return day && weekday
}

// day reports whether the day of month names the day of t.
func (d *namedDays) day(t time.Time) bool {
	last := lastDay(t)
	for _, n := range d.fromEnd {
		if t.Day() == last-n {
			return true
		}
	}
	for _, n := range d.nearest {
		if n <= last && t.Day() == workingDay(t, n, last) {
			return true
		}
	}
	return d.lastWorking && t.Day() == workingDay(t, last, last)
}

// weekday reports whether the day of week names the day of t.
func (d *namedDays) weekday(t time.Time) bool {
	const week = 7
	day := int(t.Weekday())
	return has(d.nth[(t.Day()-1)/week+1], day) || t.Day() > lastDay(t)-week && has(d.last, day)
}

func lastDay(t time.Time) int {
	return time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// workingDay returns the day from Monday to Friday that is nearest to a day of the month of t, within that month.
func workingDay(t time.Time, day, last int) int {
	switch time.Date(t.Year(), t.Month(), day, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if day == 1 {
			return day + 2
		}
		return day - 1
	case time.Sunday:
		if day == last {
			return day - 2
		}
		return day + 1
	}
	return day
}
