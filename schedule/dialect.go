package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// checkDialect refuses a line that another program reads differently, and says what to write. fields are the fields of the line.
//
// EventBridge has a year after five fields, and Quartz seconds before them; Quartz may have a year too. Both require a ? in one of the day
// fields and count the days of a week from 1. So they never write a line that is valid here.
func checkDialect(line string, fields []string) error {
	if text, ok := strings.CutPrefix(line, "rate("); ok {
		return fmt.Errorf("is a rate of EventBridge: write %q", "@every "+periodOf(strings.TrimSuffix(text, ")")))
	}
	if text, ok := strings.CutPrefix(line, "cron("); ok {
		line = strings.TrimSuffix(text, ")")
		fields = strings.Fields(line)
	} else if !strings.Contains(line, "?") {
		return nil
	}
	const years = 7
	switch n := len(fields); {
	case n == years:
		return fmt.Errorf("is a line of Quartz, with seconds and a year: %s", instead(fields[:n-1], fields[n-1]))
	case n == fieldCount && (fields[dayField] == "?" || fields[weekdayField] == "?"):
		return fmt.Errorf("is a line of Quartz or Spring: %s", instead(fields, "*"))
	case n == fieldCount:
		return fmt.Errorf("is a line of EventBridge, with a year: %s", instead(append([]string{"0"}, fields[:n-1]...), fields[n-1]))
	}
	for i, text := range fields {
		if at := i + fieldCount - len(fields); strings.Contains(text, "?") && (text != "?" || at != dayField && at != weekdayField) {
			return fmt.Errorf(`%q: only a day field may be "?", which stands for *; EventBridge and Quartz have such lines: the five fields here are `+
				"minute, hour, day of month, month, day of week", text)
		}
	}
	return nil
}

// instead returns what to write for six fields of Quartz and a year.
func instead(fields []string, year string) string {
	fields = append([]string(nil), fields...)
	for i := range fields {
		if fields[i] == "?" {
			fields[i] = "*"
		}
	}
	fields[weekdayField] = weekdayNumber.ReplaceAllStringFunc(fields[weekdayField], func(text string) string {
		day, err := strconv.Atoi(text[len(text)-1:])
		if err != nil {
			return text
		}
		return text[:len(text)-1] + weekdays[day-1]
	})
	if _, err := parseCalendar(fields); err != nil {
		return "the five fields here are minute, hour, day of month, month, day of week"
	}
	if n, err := strconv.Atoi(fields[secondField]); n == 0 && err == nil {
		fields = fields[1:]
	}
	line := strings.Join(fields, " ")
	if year != "*" && year != "?" {
		return fmt.Sprintf("there are no years here; without the year write %q", line)
	}
	return fmt.Sprintf("write %q", line)
}

// weekdayNumber matches a number of a day of the week, and the character before it. It matches neither a step nor a number after #.
var weekdayNumber = regexp.MustCompile(`(?:^|[,-])[1-7]`)

// periodOf converts a period of EventBridge, such as "5 minutes", to a duration.
func periodOf(text string) string {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return "10m"
	}
	n, err := strconv.Atoi(fields[0])
	switch unit := strings.TrimSuffix(fields[1], "s"); {
	case err != nil:
	case unit == "minute":
		return strconv.Itoa(n) + "m"
	case unit == "hour":
		return strconv.Itoa(n) + "h"
	case unit == "day":
		return strconv.Itoa(24*n) + "h"
	}
	return "10m"
}
