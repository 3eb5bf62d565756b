package workers

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// ParseRetryAfter returns how long a receiver asked to wait, from 0 to
// [shaper.MaxDelay]; 0 if it did not ask, or not intelligibly. It reads
// Retry-After-Ms, which is exact, before Retry-After, a number of seconds or an
// HTTP date counted from now (RFC 9110, 10.2.3). Fractions are taken too: some
// receivers send them.
func ParseRetryAfter(h http.Header, now time.Time) time.Duration {
	exact, value := h.Get("Retry-After-Ms"), h.Get("Retry-After")
	if exact == "" && value == "" {
		return 0 // most answers: there is nothing to parse
	}
	if wait, ok := parseNumber(exact, time.Millisecond); ok {
		return wait
	}
	if wait, ok := parseNumber(value, time.Second); ok {
		return wait
	}
	if date, err := http.ParseTime(strings.TrimSpace(value)); err == nil {
		return min(max(date.Sub(now), 0), shaper.MaxDelay)
	}
	return 0
}

// parseNumber reads a number of units, digits and a point only. A number that
// is too large for a float is infinite, and that is fine: it is cut as a float,
// before it becomes a duration.
func parseNumber(s string, unit time.Duration) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseFloat(s, 64)
	if strings.Trim(s, "0123456789.") != "" || errors.Is(err, strconv.ErrSyntax) {
		return 0, false
	}
	return time.Duration(min(n*float64(unit), float64(shaper.MaxDelay))), true
}
