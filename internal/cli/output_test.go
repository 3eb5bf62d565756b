package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

func TestHuman(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
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
		if got := human(d); got != want {
			t.Errorf("human(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1 bucket": count(1, "bucket"), "2 keys": count(2, "key"), "0 buckets": count(0, "bucket"), "2 deliveries": count(int64(2), "delivery"),
	} {
		if got != want {
			t.Errorf("count = %q, want %q", got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{0: "0 B", 1000: "1000 B", 1536: "1.5 KiB", 1023 << 10: "1023 KiB", 100 << 20: "100 MiB", 3 << 40: "3 TiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%g) = %q, want %q", n, got, want)
		}
	}
}

func TestLineKeepsTheTerminalSafe(t *testing.T) {
	t.Parallel()
	if got, want := line("a\x1b[31mb\nc\u202e", 100), "a [31mb c "; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
	if got, want := line("äöüß", 3), "äö…"; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{errors.New("broken"), 1, "p: broken\n"},
		{fail(3, "full: %w", io.EOF), 3, "p: full: EOF\n"},
		{fmt.Errorf("line 3: %w", fail(5, "gone")), 5, "p: line 3: gone\n"},
		{silent(2), 2, ""},
		{config.Faults{{File: "c.toml", Line: 3, Reason: "odd"}}, 2, "p: the configuration has 1 fault:\n  c.toml:3: odd\n"},
		{fmt.Errorf("%w: %q", shaper.ErrNotFound, "x"), 4, "p: no such job: \"x\"\n"},
		{fmt.Errorf("%w %q", shaper.ErrUnknownBucket, "x"), 4, "p: unknown bucket \"x\"\n"},
		{fmt.Errorf("ask: %w", context.Canceled), 1, "p: interrupted\n"},
	} {
		var said strings.Builder
		if code := report(&said, "p", test.err); code != test.code || said.String() != test.text {
			t.Errorf("report(%v) = %d, says %q; want %d, %q", test.err, code, said.String(), test.code, test.text)
		}
	}
}
