package opsview

import (
	"math"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

func TestHuman(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		math.MinInt64:                           "-106751d23h",
		0:                                       "0s",
		17 * time.Microsecond:                   "17µs",
		340*time.Millisecond + 1:                "340ms",
		12340 * time.Millisecond:                "12.3s",
		time.Minute - 1:                         "1m",
		192 * time.Second:                       "3m12s",
		time.Hour - 1:                           "1h",
		5*time.Hour + 3*time.Minute + 1:         "5h3m",
		24*time.Hour - 1:                        "1d",
		52 * time.Hour:                          "2d4h",
		-90 * time.Second:                       "-1m30s",
		365*24*time.Hour + 40*time.Minute + 123: "365d1h",
	} {
		must.Equal(t, Human(d), want, "Human(%d)", d)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1 bucket": Count(1, "bucket"), "2 keys": Count(2, "key"), "0 buckets": Count(0, "bucket"), "2 deliveries": Count(int64(2), "delivery"),
	} {
		must.Equal(t, got, want, "count")
	}
}

func TestLineKeepsTheTerminalSafe(t *testing.T) {
	t.Parallel()
	if got, want := Line("a\x1b[31mb\nc\u202e", 100), "a [31mb c "; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
	if got, want := Line("äöüß", 3), "äö…"; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
}
