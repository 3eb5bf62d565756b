package opsview

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Human is a duration in at most two units: "340ms", "12.3s", "3m12s", "5h3m",
// "2d4h".
func Human(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Human(d.Abs()) // which bounds the smallest one
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d.Round(100*time.Millisecond) < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d.Round(time.Second) < time.Hour:
		return twoUnits(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d.Round(time.Minute) < day:
		return twoUnits(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return twoUnits(d.Round(time.Hour), day, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprint(int64(d/large), largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprint(int64(rest), smallName)
	}
	return text
}

// Relative is an instant as seen from now: "in 3s", "2m ago", "now".
func Relative(t, now time.Time) string {
	switch d := t.Sub(now).Round(time.Millisecond); {
	case d > 0:
		return "in " + Human(d)
	case d < 0:
		return Human(-d) + " ago"
	}
	return "now"
}

// Line makes foreign text safe to show in one line: no control characters reach the terminal, and it has at most limit characters.
func Line(s string, limit int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
	if len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return string(runes)
}

// instant writes a time in UTC. One after the year 9999 is absent: JSON cannot hold it.
func instant(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	if t.IsZero() || t.Year() > 9999 {
		return nil
	}
	return &t
}

// Count is a number with its noun: "1 bucket", "2 buckets".
func Count[N int | int64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y") && !strings.HasSuffix(noun, "ey"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Instant reads a time of a filter: RFC 3339, or how long before now it was; "" is the zero time.
func Instant(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, errors.New("want a time such as 2026-03-01T12:00:00Z, or how long ago, such as 90m")
	}
	return at, nil
}
