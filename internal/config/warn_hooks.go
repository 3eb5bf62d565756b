package config

import (
	"slices"
	"time"

	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

// warnOfHooks warns of reports of windows that have to wait, because the bucket of their hook is closed when they are sent. Other events may wait in a
// bucket with windows too, which is advice.
func (c *Config) warnOfHooks(warn, advise func(string, ...any)) {
	for i, hook := range c.Hooks {
		n := slices.IndexFunc(c.Buckets, func(b Bucket) bool { return b.Name == hook.Bucket })
		if n < 0 || c.Buckets[n].Drain == nil {
			continue
		}
		p, isLate := at("hooks").element(i, hook.Bucket), false
		for _, b := range c.Buckets {
			if b.Drain == nil || !slices.Contains(hook.Events, shaper.EventWindowClosed) {
				continue
			}
			if wait := waitOfReport(timetableOf(b), timetableOf(c.Buckets[n])); wait != "" {
				isLate = true
				warn("%s: window.closed of bucket %q comes while the bucket of the hook is closed by its own drain windows, and waits %s: name a bucket that is open then",
					p.shown, b.Name, wait)
			}
		}
		if !isLate {
			advise("%s: the bucket of the hook has drain windows: an event outside of them waits until it opens. A bucket without windows sends it at once", p.shown)
		}
	}
}

// timetableOf is the timetable of a bucket that is valid.
func timetableOf(b Bucket) *schedule.Timetable {
	t, _ := b.Plan().Timetable(b.Name, schedule.Rate{Count: b.Rate.Count, Per: b.Rate.Per})
	return t
}

// waitOfReport returns for how long the reports of windows of a bucket wait in another one, at most; "" if they do not.
func waitOfReport(of, in *schedule.Timetable) string {
	const (
		windows = 50               // the number of windows to check
		takes   = 30 * time.Second // until a report may be sent, at most
		ahead   = 32 * 24 * time.Hour
	)
	longest := time.Duration(0)
	at := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC) // so that the configuration alone decides
	for range windows {
		_, end := of.Window(at)
		if end.IsZero() {
			break
		}
		if stretches, _ := in.Between(end.Add(takes), end.Add(ahead), 2); !stretches[0].Open { //nolint:mnd // this one and the next
			if len(stretches) == 1 {
				return "until an operator drains it"
			}
			longest = max(longest, stretches[1].From.Sub(end))
		}
		at = end
	}
	if longest == 0 {
		return ""
	}
	return "up to " + brief(longest)
}
