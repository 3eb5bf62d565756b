package workers

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		seconds, millis string
		want            time.Duration
	}{
		{"", "", 0},
		{"120", "", 2 * time.Minute},
		{" 120 ", "", 2 * time.Minute},
		{"0", "", 0},
		{"1.5", "", 1500 * time.Millisecond},
		{".5", "", 500 * time.Millisecond},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Sunday, 01-Mar-26 12:00:30 GMT", "", 30 * time.Second}, // RFC 850
		{"Sun Mar  1 12:00:30 2026", "", 30 * time.Second},       // asctime
		{"Sun, 01 Mar 2026 11:00:00 GMT", "", 0},                 // is over
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", shaper.MaxDelay},
		{"-5", "", 0},
		{"soon", "", 0},
		{".", "", 0},
		{"1.2.3", "", 0},
		{"NaN", "", 0},
		{"Inf", "", 0},
		{"0x10", "", 0},
		{"9223372036854775807", "", shaper.MaxDelay},
		{strings.Repeat("9", 400), "", shaper.MaxDelay},
		{"120", "250", 250 * time.Millisecond}, // the exact one wins
		{"", "0.5", 500 * time.Microsecond},
		{"120", "garbage", 2 * time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", tt.seconds)
		h.Set("retry-after-ms", tt.millis)
		must.Equal(t, retryAfter(h, noon), tt.want, "Retry-After %q, in ms %q", tt.seconds, tt.millis)
	}
}

// waitIn is how long the header of a refusal asks to wait.
func waitIn(h http.Header, now time.Time) time.Duration {
	return (&Response{Status: 429, Header: h, At: now}).wait()
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("1e309", "-1")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "99999999999999999999")
	f.Add("Thu, 01 Jan 0001 00:00:00 GMT", ".")
	f.Fuzz(func(t *testing.T, seconds, millis string) {
		h := http.Header{"Retry-After": {seconds}, "Retry-After-Ms": {millis}}
		if got := retryAfter(h, noon); got < 0 || got > shaper.MaxDelay {
			t.Errorf("%s is not from 0 to %s", got, shaper.MaxDelay)
		}
	})
}

// Of a header of 64 KiB, the first KiB counts: a number is as good as endless, a list has the limits that are
// whole there, and anything else is garbage.
func TestNamedWaitOfLongHeaders(t *testing.T) {
	t.Parallel()
	const long = 64 << 10
	full := func(limits ...string) string { return strings.Join(limits, ", ") }
	padding := strings.Repeat(`"padding";r=7;t=7, `, long/20)
	for name, tt := range map[string]struct {
		header, value string
		want          time.Duration
	}{
		"digits":               {"Retry-After", strings.Repeat("9", long), shaper.MaxHold},
		"zeros":                {"Retry-After", strings.Repeat("0", long) + "9", 0},
		"blanks":               {"Retry-After", strings.Repeat(" ", long) + "9", 0},
		"garbage":              {"Retry-After", strings.Repeat("a", long), 0},
		"a duration":           {"Retry-After", strings.Repeat("1h", long), maxHeaderValue / 2 * time.Hour},
		"in the first KiB":     {"RateLimit", full(`"a";r=0;t=5`, padding), 5 * time.Second},
		"behind the first KiB": {"RateLimit", padding + `"a";r=0;t=5`, 0},
		"across its end":       {"RateLimit", full(`"a";r=0;t=5`, `"`+strings.Repeat("b", maxHeaderValue-23)+`";r=0;t=600`), 5 * time.Second},
		"one limit":            {"RateLimit", `"` + strings.Repeat("b", long) + `";r=0;t=5`, 0},
		"parameters":           {"RateLimit", `"a";r=0;t=5` + strings.Repeat(";a=0", long), 0},
	} {
		must.Equal(t, waitIn(http.Header{http.CanonicalHeaderKey(tt.header): {tt.value}}, noon), tt.want, "%s", name)
	}
	lines := slices.Repeat([]string{`"padding";r=7;t=7`}, long/20)
	must.Equal(t, waitIn(http.Header{"Ratelimit": append([]string{`"a";r=0;t=5`}, lines...)}, noon), 5*time.Second, "many lines, want 5s")
}

func FuzzRateLimit(f *testing.F) {
	f.Add(`"burst";r=0;t=5, "daily";r=9;t=36000`, "", "")
	f.Add(`limit=100, remaining=0, reset=5`, "0", "1772366430")
	f.Add(`"a";r=0;t=999999999999999`, "0.0", "2026-03-01T12:00:30Z")
	f.Add(`("a";r=0;t=5);r=0;t=6`, "00", "6m0s")
	f.Add(`remaining=(0), reset=:AA==:`, "0", "-9223372036854775808ns")
	f.Fuzz(func(t *testing.T, field, remaining, reset string) {
		h := http.Header{}
		h.Set("RateLimit", field)
		for _, limit := range limitHeaders {
			h.Set(limit.remaining, remaining)
			h.Set(limit.reset, reset)
		}
		got := waitIn(h, noon)
		if got < 0 || got > shaper.MaxHold || got%time.Microsecond != 0 {
			t.Errorf("%s is not from 0 to %s in whole microseconds", got, shaper.MaxHold)
		}
	})
}
