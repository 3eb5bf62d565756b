package workers

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// maxHeaderValue is how many bytes of a header's value are parsed.
const maxHeaderValue = 1 << 10

// parseWait reads a wait as receivers write it: a number of seconds, which may have a fraction; a time in
// Unix seconds (above 1e9) or milliseconds (above 1e12); an HTTP date (RFC 9110, 5.6.7); a time of RFC
// 3339; or a duration such as 6m0s. It is 0 for a time that is past and for anything else.
func parseWait(text string, now time.Time) time.Duration {
	if text == "" {
		return 0 // most responses: there is nothing to parse
	}
	if n, ok := parseNumber(text); ok {
		switch {
		case n > 1e12:
			return waitOf(n-float64(now.UnixMilli()), time.Millisecond)
		case n > 1e9:
			return waitOf(n-float64(now.UnixMilli())/1e3, time.Second)
		}
		return waitOf(n, time.Second)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return waitOf(float64(d), 1)
	}
	date, err := http.ParseTime(text)
	if err != nil {
		date, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return 0
	}
	return waitOf(float64(date.Sub(now)), 1)
}

// parseNumber reads digits and a point only. A number that is too large for a float is
// infinite, and that is fine: see waitOf.
func parseNumber(s string) (float64, bool) {
	n, err := strconv.ParseFloat(s, 64)
	if strings.Trim(s, "0123456789.") != "" || errors.Is(err, strconv.ErrSyntax) {
		return 0, false
	}
	return n, true
}

// waitOf returns n units from 0 to [shaper.MaxHold], in whole microseconds. It cuts the number as a float, before that
// becomes a duration.
func waitOf(n float64, unit time.Duration) time.Duration {
	n = min(max(n*float64(unit), 0), float64(shaper.MaxHold))
	return time.Duration(n).Round(time.Microsecond)
}

// headerValue returns the beginning of a header's first value.
func headerValue(h http.Header, name string) string {
	text := h.Get(name)
	return strings.TrimSpace(text[:min(len(text), maxHeaderValue)])
}
