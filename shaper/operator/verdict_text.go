package operator

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tundish-io/tundish/shaper"
)

// maxCauses is how many causes a sentence names.
const maxCauses = 3

// Sentence returns the verdict for people, in one line. Every view shows this text.
func (v *Verdict) Sentence() string {
	var text strings.Builder
	if v.Failed > 0 && float64(v.Failed) >= failsMuch*float64(v.Attempts) {
		fmt.Fprintf(&text, "%s of %s attempts of the last minute failed", number(v.Failed), number(v.Attempts))
		if v.Reason != "" {
			text.WriteString(": " + word(v.Reason))
		}
		text.WriteString(". ")
	}
	if v.Code == WhyEmpty {
		text.WriteString("Nothing waits")
		if v.dead > 0 {
			fmt.Fprintf(&text, " (dead letters: %s; `dispatcher dead list %s` shows why)", number(v.dead), v.Bucket)
		}
	} else {
		fmt.Fprintf(&text, "Sends %s. %s", v.pace(), v.waitsText())
	}
	if v.Grows > 0 {
		fmt.Fprintf(&text, ". Backlog grows by %s/s", amount(v.Grows))
		if !v.Full.IsZero() {
			text.WriteString(": full in " + roughly(v.Full.Sub(v.now)))
		}
	}
	if v.Left > 0 {
		fmt.Fprintf(&text, ". At this pace %s will be left at the finish at %s", number(v.Left), clock(v.Finish, v.now))
	}
	for _, note := range v.notes {
		text.WriteString("; " + note)
	}
	return text.String()
}

// State returns the verdict in a few words, for a column of a table. A pause, or a closed window and its end, has precedence over an empty bucket.
func (v *Verdict) State() string {
	switch closed := v.closed(); {
	case v.isPaused:
		return string(WhyPaused)
	case closed != "" && (v.Code == WhyEmpty || v.Code == WhyLater || v.Code == WhyClosed):
		return closed
	}
	return string(v.Code)
}

// closed returns "closed, opens 22:00" for a bucket that is closed by its timetable, else "".
func (v *Verdict) closed() string {
	switch {
	case v.hours == nil || v.hours.Open:
		return ""
	case v.hours.Opens.IsZero():
		return "closed until an operator drains it"
	}
	return "closed, opens " + clock(v.hours.Opens, v.now)
}

// pace returns "0 of 60/s", in the unit of the rate.
func (v *Verdict) pace() string {
	if v.Rate.IsZero() {
		return "0"
	}
	switch v.Rate.Per {
	case time.Second, time.Minute, time.Hour, 24 * time.Hour: //nolint:mnd // a day
		return fmt.Sprintf("%s of %s", amount(v.Succeeded*v.Rate.Per.Seconds()), v.Rate)
	}
	return fmt.Sprintf("%s of %s/s", amount(v.Succeeded), amount(v.Rate.PerSecond())) // an even rate until a finish has an odd period
}

func (v *Verdict) waitsText() string {
	var text strings.Builder
	text.WriteString(number(v.Waits) + " wait")
	if v.Waits == 1 {
		text.WriteString("s")
	}
	if v.OldestAge > 0 {
		text.WriteString(", the oldest " + roughly(v.OldestAge))
	}
	list := v.Blocked
	if v.Code == WhySends && len(list) == 1 && list[0].Code == WhyRate && list[0].Scope == shaper.ScopeBucket {
		return text.String() // what is named is its rate
	}
	for i := range list[:min(len(list), maxCauses)] {
		text.WriteString([]string{": ", ", ", ", "}[i] + list[i].text(v.Bucket, v.now))
	}
	if len(list) > maxCauses {
		jobs := int64(0)
		for _, c := range list[maxCauses:] {
			jobs += c.Jobs
		}
		fmt.Fprintf(&text, ", and %s by %d more causes", number(jobs), len(list)-maxCauses)
	}
	if v.Looked < v.Flows {
		fmt.Fprintf(&text, " (estimated from %s of %s flows)", number(v.Looked), number(v.Flows))
	}
	return text.String()
}

// text is "1,018 of endpoint-2 (breaker, http_500, since 21:12, next probe 21:44)".
func (c *Blocked) text(bucket string, now time.Time) string {
	parts := []string{c.Code.words()}
	add := func(text string, holds bool) {
		if holds {
			parts = append(parts, text)
		}
	}
	if c.Reason == shaper.ReasonMoves {
		parts[0] = "changes its pool once its deliveries have ended"
	} else {
		add(word(c.Reason), c.Reason != "")
	}
	add(oneLine(c.detail), c.detail != "")
	add("since "+clock(c.Since, now), !c.Since.IsZero())
	until := "until "
	switch c.Code {
	case WhyBreaker:
		until = "next probe "
	case WhyClosed:
		until = "opens "
	case WhyFailing:
		until = "next attempt "
	case WhyLater:
		until = "first "
	}
	add(until+clock(c.Until, now), c.Until.After(now))
	of := ""
	if where := c.where(bucket); where != "it" {
		of = " of " + where
	}
	return number(c.Jobs) + of + " (" + strings.Join(parts, ", ") + ")"
}

// where names the scope of a cause; the bucket is "it".
func (c *Blocked) where(bucket string) string {
	switch {
	case c.Scope == shaper.ScopeBucket && (c.Name == bucket || c.Name == ""):
		return "it"
	case c.Scope == shaper.ScopeFlow && c.Name == "" && c.Flows > 1:
		return number(c.Flows) + " more flows"
	case c.Scope == shaper.ScopeFlow:
		return name(c.Name)
	}
	return string(c.Scope) + " " + name(c.Name)
}

// words returns the code as words of a sentence.
func (c WhyCode) words() string {
	switch c {
	case WhyNoDispatcher:
		return "no dispatcher runs"
	case WhyMissing:
		return "flow does not exist"
	case WhyInFlight:
		return "in-flight bound"
	case WhyHostFault:
		return "no host can connect"
	case WhyFailing:
		return "attempts fail"
	case WhyLate:
		return "permits come back unused"
	case WhyAdaptiveRate:
		return "adaptive rate"
	case WhyStarting:
		return "too early to say"
	case WhySlow:
		return "no known cause"
	case WhyLater:
		return "delayed"
	case WhyQuota:
		return "quota used up"
	default:
		return string(c)
	}
}

// number is a count with commas.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	const digits = 3
	for i := len(text) - digits; i > 0 && text[i-1] != '-'; i -= digits {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// amount is a number with three digits, or without a fraction.
func amount(x float64) string {
	const large = 100
	if x >= large {
		return number(int64(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// roughly is a time for people: "31 min".
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 2*day:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f d", d.Hours()/day.Hours())
}

// clock formats a time of day, in UTC, with the date if it is more than twelve hours away.
func clock(at, now time.Time) string {
	layout := "15:04"
	if d := at.Sub(now).Abs(); d > 12*time.Hour {
		layout = "2006-01-02 15:04"
	} else if d < 2*time.Minute {
		layout = time.TimeOnly
	}
	return at.UTC().Format(layout)
}

// name returns the name of a flow, a group or a pool, safe to show in a line.
func name(text string) string {
	if text == "" {
		return `""`
	}
	const most = 80
	return cut(text, most)
}

func word(text string) string {
	const most = 40
	return cut(text, most)
}

func oneLine(text string) string {
	const most = 200
	return cut(text, most)
}

func cut(text string, most int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}
