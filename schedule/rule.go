package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Rule computes when a schedule fires. It is immutable, and safe for concurrent use.
type Rule struct {
	every  time.Duration // of "@every"; then nothing else is set
	fields *calendar     // of a cron line
	zone   *time.Location
	name   string // of the zone
	repeat bool   // the line has * in its minutes or hours: see Next
}

// minEvery is the shortest period.
const minEvery = time.Second

// descriptors are short names of cron lines.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads a cron line: five fields (minute, hour, day of month, month, day of week), or six, with seconds in front; "@daily" and the like;
// or "@every 10m", whose fire times are the multiples of the period since 1970-01-01 00:00 UTC.
//
// A field is a list of values, ranges and steps, as in crontab. A range may wrap, such as FRI-MON and 22-2. Sunday is 0 and 7. The day of month
// may be L (the last day), L-3, LW (the last working day) or 15W (the working day nearest to the 15th). The day of week may be FRIL (the last
// Friday) or MON#1 (the first Monday). A ? means * in the day fields of a line of five fields only. Other lines with a ? belong to EventBridge
// and Quartz, which mean other times, so Parse refuses them.
//
// H in a field is a value derived from name. So a thousand schedules with "H 2 * * *" spread over the hour, and each keeps its minute. See
// expandHashes. zone is the name of a time zone such as "Europe/Paris"; "" means UTC.
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
		return &Rule{every: every, zone: place, name: zone}, nil
	}
	if strings.HasPrefix(line, "@") {
		fields, ok := descriptors[line]
		if !ok {
			return nil, fmt.Errorf("cron %q: want @yearly, @monthly, @weekly, @daily, @hourly, \"@every 10m\", or five or six fields", line)
		}
		line = fields
	}
	if strings.Contains(line, "TZ=") {
		return nil, fmt.Errorf("cron %q: name the time zone in timezone, not in the line", line)
	}
	r, err := parseLine(line, name)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", line, err)
	}
	r.zone, r.name = place, zone
	if r.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q: never fires: no day within five years is one", line)
	}
	return r, nil
}

// parseLine reads five or six fields.
func parseLine(line, name string) (*Rule, error) {
	fields := strings.Fields(line)
	if err := checkDialect(line, fields); err != nil {
		return nil, err
	}
	if n := len(fields); n != fieldCount && n != fieldCount-1 {
		return nil, fmt.Errorf("has %d fields: want five (minute, hour, day of month, month, day of week), or six with seconds in front", n)
	}
	if len(fields) < fieldCount {
		fields = append([]string{"0"}, fields...)
	}
	if err := expandHashes(fields, name); err != nil {
		return nil, err
	}
	calendar, err := parseCalendar(fields)
	if err != nil {
		return nil, err
	}
	return &Rule{fields: calendar, repeat: strings.HasPrefix(fields[minuteField], "*") || strings.HasPrefix(fields[hourField], "*")}, nil
}

// Warnings lists parts of the line and its time zone that may not mean what was intended. Each begins with the key: cron or timezone.
func (r *Rule) Warnings() []string {
	var warnings []string
	if c := r.fields; c != nil && restricts(c.spec.Dom) && restricts(c.spec.Dow) {
		warnings = append(warnings, "cron: names a day of month and a day of week: either day fires; "+
			"the first Monday is MON#1 in the day of week, with * in the day of month")
	}
	if text := zoneWarning(r.name); text != "" {
		warnings = append(warnings, text)
	}
	return warnings
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

// Next returns the first fire time after t, in whole seconds; zero if there is none in the five years after t.
//
// When clocks change, a line with * in its minutes or hours, such as "*/30 * * * *", follows elapsed time: it fires in both hours that a clock
// shows twice, and not in an hour that no clock shows. Any other line names times of day, and fires once on each day of the line. A time that no
// clock shows on that day fires at the moment of the change; a time that occurs twice fires the first time.
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
		shown := r.fields.next(from)
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
			if missing := r.fields.next(s.start.Add(s.before - time.Second).UTC()); missing.Before(s.shown(s.start)) && !missing.IsZero() {
				return s.start
			}
		}
	}
}

// NextN returns the next n fire times after t: fewer if the next one is more than five years away.
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

// last returns the latest fire time after from, up to and including to; zero if there is none.
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

// segment is a period without a change of the zone's clocks.
type segment struct {
	start, end time.Time     // zero: for ever
	offset     time.Duration // of the clocks, from UTC
	before     time.Duration // the offset before start
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

// shown returns what the clocks show at t, as a time in UTC, without fractions of a second.
func (s segment) shown(t time.Time) time.Time {
	return time.Unix(t.Unix(), 0).UTC().Add(s.offset)
}

// floor returns a/b, rounded down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
