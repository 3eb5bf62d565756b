package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
)

// ranges are the values of H, in each of the six fields. The days of a month end with 28: every month has that.
var ranges = [...]struct {
	name      string
	low, high int
}{{"second", 0, 59}, {"minute", 0, 59}, {"hour", 0, 23}, {"day of month", 1, 28}, {"month", 1, 12}, {"day of week", 0, 6}}

var hashPattern = regexp.MustCompile(`^H(?:\((\d+)-(\d+)\))?(?:/(\d+))?$`)

// expandHashes replaces each part that begins with H in six fields. "H" becomes one value of the field's range, "H(9-17)" one of these values.
// "H/15" becomes every fifteenth value from one of the first fifteen on, and "H(0-29)/10" the same within the range. The value is derived from
// name and the number of the field, so it never changes.
func expandHashes(fields []string, name string) error {
	for i, field := range fields {
		if !strings.Contains(field, "H") {
			continue
		}
		match := hashPattern.FindStringSubmatch(field)
		if match == nil {
			if strings.Contains(strings.ToUpper(field), "THU") { // of the short names of days and months only this one has the letter
				continue
			}
			return fmt.Errorf("%s %q: want H, H/15, H(0-29) or H(0-29)/10", ranges[i].name, field)
		}
		low, high := ranges[i].low, ranges[i].high
		if match[1] != "" {
			var err1, err2 error
			low, err1 = strconv.Atoi(match[1])
			high, err2 = strconv.Atoi(match[2])
			if errors.Join(err1, err2) != nil || low < ranges[i].low || high > ranges[i].high || low > high {
				return fmt.Errorf("%s %q: want a range within %d-%d", ranges[i].name, field, ranges[i].low, ranges[i].high)
			}
		}
		if match[3] == "" {
			fields[i] = strconv.Itoa(low + spread(name, i, high-low+1))
			continue
		}
		step, err := strconv.Atoi(match[3])
		if err != nil || step < 1 || step > high-low+1 {
			return fmt.Errorf("%s %q: want a step of 1 to %d", ranges[i].name, field, high-low+1)
		}
		fields[i] = fmt.Sprintf("%d-%d/%d", low+spread(name, i, step), high, step)
	}
	return nil
}

// spread is a number below n, made from a name and a field.
func spread(name string, field, n int) int {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %d", name, field)
	sum := hash.Sum64()
	sum ^= sum >> 32
	return int(sum % uint64(n))
}
