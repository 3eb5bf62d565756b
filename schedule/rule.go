package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a machine or a container without a time zone database has one in the program

	"github.com/robfig/cron/v3"
)

// Rule says when a schedule fires. It does not change, and is safe for concurrent use.
type Rule struct {
	every  time.Duration      // of "@every"; then nothing else is set
	fields *cron.SpecSchedule // of a cron line, asked in UTC: it is a calendar without a time zone
	zone   *time.Location
	repeat bool // the line has * in its minutes or hours: see Next
}

// minEvery is the shortest period.
const minEvery = time.Second

// descriptors are short names of cron lines.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads a cron line: five fields (minute, hour, day of month, month, day of week), or six, with seconds in front; "@daily" and the
// like; or "@every 10m", whose fire times are the multiples of the period since 1970-01-01 00:00 UTC.
//
// H in a field stands for a value that is made from name: so a thousand schedules with "H 2 * * *" spread over the hour, and each has
// its own minute for ever. See expandHashes. zone is the name of a time zone such as "Europe/Paris"; "" means UTC.
//
// An error says what is wrong and what to write instead. A line that never fires is an error too.
func Parse(line, zone, name string) (*Rule, error) {
	place, err := location(zone)
	if err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	if period, ok := strings.CutPrefix(line, "@every"); ok {
		every, err := parseEvery(strings.TrimSpace(period))
		if err != nil {
			return nil, err
		}
		return &Rule{every: every, zone: place}, nil
	}
	if strings.HasPrefix(line, "@") {
		fields, ok := descriptors[line]
		if !ok {
			return nil, fmt.Errorf("cron %q: want @yearly, @monthly, @weekly, @daily, @hourly, \"@every 10m\", or five or six fields", line)
		}
		line = fields
	}
	if strings.Contains(line, "TZ=") { // the parser panics on some of these
		return nil, fmt.Errorf("cron %q: name the time zone in timezone, not in the line", line)
	}
	fields := strings.Fields(line)
	const fewest, most = 5, 6
	if len(fields) != fewest && len(fields) != most {
		return nil, fmt.Errorf("cron %q: has %d fields: want five (minute, hour, day of month, month, day of week), or six with seconds in front", line, len(fields))
	}
	if len(fields) == fewest {
		fields = append([]string{"0"}, fields...)
	}
	if err := expandHashes(fields, name); err != nil {
		return nil, fmt.Errorf("cron %q: %w", line, err)
	}
	spec, err := parseFields(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", line, err)
	}
	spec.Location = time.UTC
	r := &Rule{fields: spec, zone: place, repeat: strings.HasPrefix(fields[1], "*") || strings.HasPrefix(fields[2], "*")}
	if r.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q: never fires: no year has such a day", line)
	}
	return r, nil
}

// parseFields has the parser read six fields. It turns a panic of the parser into an error: see robfig/cron issues 470 and 554.
func parseFields(fields string) (spec *cron.SpecSchedule, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			spec, err = nil, errors.New("is no cron line")
		}
	}()
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(fields)
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("is no cron line")
	}
	return spec, nil
}

func parseEvery(text string) (time.Duration, error) {
	every, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cron \"@every %s\": want a duration such as @every 90s or @every 1h30m", text)
	case every < minEvery:
		return 0, fmt.Errorf("cron \"@every %s\": want 1s or more", text)
	case every%time.Second != 0:
		return 0, fmt.Errorf("cron \"@every %s\": want whole seconds", text)
	case every > 366*24*time.Hour:
		return 0, fmt.Errorf("cron \"@every %s\": want at most a year", text)
	}
	return every, nil
}

func location(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if name == "Local" {
		return nil, errors.New("timezone \"Local\": differs from machine to machine: name one, such as Europe/Paris")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timezone %q: is unknown: want a name of the IANA database, such as UTC, Europe/Paris or America/New_York", name)
	}
	return zone, nil
}

// Next is the first fire time after t, in whole seconds; zero if there is none in the five years after t.
//
// Where clocks change, a line with * in its minutes or hours, such as "*/30 * * * *", follows elapsed time: it fires in both of the
// hours that a clock shows twice, and not in an hour that no clock shows. Any other line names times of day, and fires once each day
// that it names: a time that no clock shows on that day fires at the moment of the change, a time that comes twice the first time.
func (r *Rule) Next(t time.Time) time.Time {
	if r.every > 0 {
		period := int64(r.every / time.Second)
		return time.Unix((floor(t.Unix(), period)+1)*period, 0).In(r.zone)
	}
	const years = 5 // as far as the parser's own search goes
	limit := t.AddDate(years, 0, 0)
	s := segmentAt(t.In(r.zone))
	for from := s.shown(t); ; {
		if !r.repeat && s.before > s.offset && from.Before(s.start.Add(s.before).UTC()) {
			from = s.start.Add(s.before - time.Second).UTC() // the times until then were shown before the change, and fired
		}
		shown := r.fields.Next(from)
		if shown.IsZero() {
			return time.Time{}
		}
		if fire := shown.Add(-s.offset).In(r.zone); s.end.IsZero() || fire.Before(s.end) {
			return fire
		}
		if s.end.After(limit) {
			return time.Time{}
		}
		change := s.end
		s = segmentAt(change)
		from = s.shown(change).Add(-time.Second)
		if !r.repeat && s.before < s.offset && s.start.Equal(change) { // no clock shows the times between the two
			if missing := r.fields.Next(s.start.Add(s.before - time.Second).UTC()); missing.Before(s.shown(s.start)) && !missing.IsZero() {
				return s.start
			}
		}
	}
}

// NextN is the next n fire times after t: fewer if there are not so many within five years of each other.
func (r *Rule) NextN(t time.Time, n int) []time.Time {
	var times []time.Time
	for range n {
		if t = r.Next(t); t.IsZero() {
			break
		}
		times = append(times, t)
	}
	return times
}

// last is the latest fire time in the time after from up to and including to; zero if there is none.
func (r *Rule) last(from, to time.Time) time.Time {
	low, high := from.Unix(), to.Unix() // a fire time follows low, and none that is not after to follows high
	if next := r.Next(from); next.IsZero() || next.After(to) {
		return time.Time{}
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		if next := r.Next(time.Unix(middle, 0)); next.IsZero() || next.After(to) {
			high = middle
		} else {
			low = middle
		}
	}
	return r.Next(time.Unix(low, 0))
}

// segment is a time in which the clocks of a zone do not change.
type segment struct {
	start, end time.Time     // zero: for ever
	offset     time.Duration // of what the clocks show, from UTC
	before     time.Duration // the same before start
}

func segmentAt(t time.Time) segment {
	s := segment{}
	s.start, s.end = t.ZoneBounds()
	if !s.end.IsZero() && !s.end.After(t) { // so it is in package time on the last day of a leap year after 2037: no clocks change then
		s.end = t.Add(24 * time.Hour)
	}
	s.offset = offsetAt(t)
	s.before = s.offset
	if !s.start.IsZero() {
		s.before = offsetAt(s.start.Add(-time.Second))
	}
	return s
}

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// shown is what the clocks show at t, as a time in UTC, without fractions of a second.
func (s segment) shown(t time.Time) time.Time {
	return time.Unix(t.Unix(), 0).UTC().Add(s.offset)
}

// floor is a/b, rounded down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
