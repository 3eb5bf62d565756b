package shaper

import "time"

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// clockText formats an instant for people, to the millisecond.
func clockText(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func inParens(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
