package workers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
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
		if got := ParseRetryAfter(h, noon); got != tt.want {
			t.Errorf("Retry-After %q, in ms %q: %s, want %s", tt.seconds, tt.millis, got, tt.want)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("1e309", "-1")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "99999999999999999999")
	f.Add("Thu, 01 Jan 0001 00:00:00 GMT", ".")
	f.Fuzz(func(t *testing.T, seconds, millis string) {
		h := http.Header{"Retry-After": {seconds}, "Retry-After-Ms": {millis}}
		if got := ParseRetryAfter(h, noon); got < 0 || got > shaper.MaxDelay {
			t.Errorf("%s is not from 0 to %s", got, shaper.MaxDelay)
		}
	})
}
