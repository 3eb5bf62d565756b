package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// checkDialect refuses a line that another program reads otherwise, and says what to write. It gets the fields of the line.
//
// EventBridge has a year behind five fields, and Quartz seconds in front of them; Quartz may have a year too. Both demand a ? in one
// of the day fields, count the days of a week from 1, and so never write a line that is valid here.
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

// instead says what to write for six fields of Quartz and a year.
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

// weekdayNumber is a number of a day of the week, and what stands before it. A step and a number behind # are none.
var weekdayNumber = regexp.MustCompile(`(?:^|[,-])[1-7]`)

// periodOf is a period of EventBridge, such as "5 minutes", as a duration.
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
