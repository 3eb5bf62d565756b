package admission

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Bounds of a rate. The upper one keeps every sum of the scripts below 2^53,
// where a Lua number stops being exact.
const (
	MaxRatePerSecond = 1_000_000
	MinPeriod        = time.Millisecond
	MaxPeriod        = 31 * 24 * time.Hour
)

// UnitRequests is the unit of a rate that names none.
const UnitRequests = "requests"

// Rate is a number of units in a period: Count units every Per. It is exact: 7 per minute stays 7/60 of a unit per second, and nothing is
// rounded to an interval.
//
// The zero value is no rate; [Rate.IsZero] reports it.
type Rate struct {
	Count int64         // units, 1 or more
	Per   time.Duration // period, whole milliseconds from 1 ms to 31 days
	Unit  string        // UnitRequests unless named
}

// ParseRate reads `N [unit]/period`, where period is s, m, h or d, or a Go duration:
// "50/s", "100/15m", "90000 tokens/m", "2000/d".
// The error names the wrong part and its valid values.
func ParseRate(text string) (Rate, error) {
	left, right, ok := strings.Cut(strings.TrimSpace(text), "/")
	if !ok {
		return Rate{}, fmt.Errorf("rate %q: want a number and a period, such as \"50/s\" or \"100/15m\"", text)
	}
	count, unit, _ := strings.Cut(strings.TrimSpace(left), " ")
	unit = strings.TrimSpace(unit)
	if unit == "" {
		unit = UnitRequests
	}
	if !IsUnit(unit) {
		return Rate{}, fmt.Errorf("rate %q: unit %q: want one word of lower-case letters, such as requests or tokens", text, unit)
	}
	n, err := strconv.ParseInt(count, 10, 64)
	notWhole := err
	per, err := parsePeriod(strings.TrimSpace(right))
	if notWhole != nil {
		if whole, ok := wholeRate(count, per, unit); ok {
			return Rate{}, fmt.Errorf("rate %q: %q is not a whole number: the same rate is %q", text, count, whole)
		}
		return Rate{}, fmt.Errorf("rate %q: %q is not a whole number", text, count)
	}
	if err != nil {
		return Rate{}, fmt.Errorf("rate %q: %w", text, err)
	}
	rate := Rate{Count: n, Per: per, Unit: unit}
	return rate, rate.Validate()
}

// wholeRate returns the rate with a whole number that equals count units every per; count is a decimal number: 19/10s for 1.9/s.
func wholeRate(count string, per time.Duration, unit string) (string, bool) {
	if len(count) > 20 || strings.Trim(count, "0123456789.") != "" {
		return "", false
	}
	number, ok := new(big.Rat).SetString(count)
	if !ok || per < MinPeriod || per > MaxPeriod || !number.Num().IsInt64() || number.Denom().Cmp(big.NewInt(int64(MaxPeriod/per))) > 0 {
		return "", false
	}
	rate := Rate{Count: number.Num().Int64(), Per: per * time.Duration(number.Denom().Int64()), Unit: unit}
	if rate.Validate() != nil {
		return "", false
	}
	text := rate.String()
	for _, zero := range []string{"m0s", "h0m"} { // 1/2m, not 1/2m0s
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text, true
}

func parsePeriod(text string) (time.Duration, error) {
	switch text {
	case "s":
		return time.Second, nil
	case "m":
		return time.Minute, nil
	case "h":
		return time.Hour, nil
	case "d":
		return 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("period %q: want s, m, h, d or a duration such as 15m", text)
	}
	return d, nil
}

// IsUnit reports whether a word may be a unit: lower-case letters, - and _.
func IsUnit(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '_' && r != '-' {
			return false
		}
	}
	return s != ""
}

// Validate reports a number or period out of range, or nil.
func (r Rate) Validate() error {
	switch {
	case r.Count < 1:
		return fmt.Errorf("rate %q: the number is %d, want 1 or more", r, r.Count)
	case r.Per < MinPeriod || r.Per > MaxPeriod || r.Per%time.Millisecond != 0:
		return fmt.Errorf("rate %q: the period is %s, want whole milliseconds from %s to 31 days", r, r.Per, MinPeriod)
	case r.PerSecond() > MaxRatePerSecond || r.Count > math.MaxInt32:
		return fmt.Errorf("rate %q: more than %d a second", r, MaxRatePerSecond)
	}
	return nil
}

// IsZero reports whether no rate is set.
func (r Rate) IsZero() bool { return r.Count == 0 && r.Per == 0 }

// PerSecond is the rate in units a second, for display and estimates.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// Interval is the time between two units, rounded down to a nanosecond.
func (r Rate) Interval() time.Duration {
	if r.Count <= 0 {
		return 0
	}
	return r.Per / time.Duration(r.Count)
}

// String writes the rate in the grammar that ParseRate reads.
func (r Rate) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(r.Count, 10))
	if r.Unit != "" && r.Unit != UnitRequests {
		b.WriteString(" " + r.Unit)
	}
	b.WriteString("/")
	switch r.Per {
	case time.Second:
		b.WriteString("s")
	case time.Minute:
		b.WriteString("m")
	case time.Hour:
		b.WriteString("h")
	case 24 * time.Hour:
		b.WriteString("d")
	default:
		b.WriteString(r.Per.String())
	}
	return b.String()
}

// MarshalText writes the rate as String does.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what ParseRate reads.
func (r *Rate) UnmarshalText(text []byte) error {
	rate, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = rate
	return nil
}
