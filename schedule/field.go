package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The fields of a cron line, with seconds in front.
const (
	secondField = iota
	minuteField
	hourField
	dayField
	monthField
	weekdayField
	fieldCount
)

// starBit marks a day field that names no days, as package cron has it. Where both day fields name some, either one is enough.
const starBit = 1 << 63

// kind is a kind of field.
type kind struct {
	name      string
	low, high int
	values    []string // names of values, from low on
	step      string   // how to write a longer period
}

var kinds = [fieldCount]kind{
	{"second", 0, 59, nil, `"@every 90s"`},
	{"minute", 0, 59, nil, `"@every 90m"`},
	{"hour", 0, 23, nil, `"@every 36h"`},
	{"day of month", 1, 31, nil, `"@every 1080h"`},
	{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}, "the months one by one"},
	{"day of week", 0, 6, weekdays, "the days one by one"},
}

var weekdays = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

// item is one part of a list: a value, a range or a star, with a step.
var item = regexp.MustCompile(`^(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/(\d+))?$`)

// parse reads a list of values. It returns a bit for each value, and starBit where the field names none.
func (k kind) parse(text string) (uint64, error) {
	var all uint64
	for part := range strings.SplitSeq(text, ",") {
		values, err := k.item(part)
		if err != nil {
			return 0, fmt.Errorf("%s %q: %w", k.name, text, err)
		}
		all |= values
	}
	return all, nil
}

func (k kind) item(text string) (uint64, error) {
	match := item.FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("%q is none of: %s", text, k.forms())
	}
	star, first, last, step := match[1] != "", match[2], match[3], match[4]
	from, to, most := k.low, k.high, k.size()
	var err error
	if !star {
		if from, err = k.value(first); err != nil {
			return 0, err
		}
		switch {
		case last != "":
			if to, err = k.value(last); err != nil {
				return 0, err
			}
			if last == "7" && k.high == 6 && first != "7" && from == 0 { // 0-7 is Sunday to Sunday
				to = k.high
			}
			most = (to-from+k.size())%k.size() + 1
		case step == "":
			to = from
		}
	}
	by := 1
	if step != "" {
		if by, err = strconv.Atoi(step); err != nil || by < 1 || by > most {
			return 0, fmt.Errorf("the step of %q is 1 to %d: a longer period is %s", text, most, k.step)
		}
	}
	values := k.between(from, to, by)
	if star && by == 1 {
		values |= starBit
	}
	return values, nil
}

// between returns every by-th value from one to another. A range that ends before it begins goes on from the lowest value, as FRI-MON does.
func (k kind) between(from, to, by int) uint64 {
	var values uint64
	for i := 0; i <= (to-from+k.size())%k.size(); i += by {
		values |= 1 << (k.low + (from-k.low+i)%k.size())
	}
	return values
}

func (k kind) size() int { return k.high - k.low + 1 }

// value reads a number or a name.
func (k kind) value(text string) (int, error) {
	for i, name := range k.values {
		if strings.EqualFold(text, name) {
			return k.low + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err == nil && n == 7 && k.name == kinds[weekdayField].name {
		return 0, nil // Sunday has two numbers
	}
	if err != nil || n < k.low || n > k.high {
		return 0, fmt.Errorf("%q is none of: %s", text, k.forms())
	}
	return n, nil
}

// forms lists what a field may have.
func (k kind) forms() string {
	switch k.name {
	case kinds[dayField].name:
		return "1 to 31, ranges such as 1-7, steps such as */2, L (the last day), L-3, LW (the last working day), 15W (the one next to the 15th)"
	case kinds[weekdayField].name:
		return "0 to 7 or SUN to SAT (0 and 7 are Sunday), ranges such as MON-FRI, FRIL (the last Friday), MON#1 (the first Monday)"
	case kinds[monthField].name:
		return "1 to 12 or JAN to DEC, ranges such as NOV-FEB, steps such as */3"
	}
	return fmt.Sprintf("%d to %d, ranges such as 1-5, steps such as */15", k.low, k.high)
}

// restricts reports whether a day field names days.
func restricts(values uint64) bool { return values&starBit == 0 }

// has reports whether a field has a value.
func has(values uint64, value int) bool { return values&(1<<value) != 0 }
