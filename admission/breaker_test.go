package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		metrics := NewMetrics(prometheus.NewRegistry(), nil)
		b := NewBreaker(BreakerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), Metrics: metrics})
		calls := 0
		try := func(result error) error {
			return b.Run(func() error {
				calls++
				return result
			})
		}
		state := func(want float64, shaky bool) {
			t.Helper()
			if got := testutil.ToFloat64(metrics.breaker); got != want || b.Shaky() != shaky {
				t.Errorf("state %v, shaky %t; want %v", got, b.Shaky(), want)
			}
		}
		away, stays := fmt.Errorf("x: %w", context.DeadlineExceeded), errors.New("WRONGTYPE")
		for range 10 { // what is no failure, and what ends a row of them
			for range DefaultBreakerFailures - 1 {
				if err := try(away); !errors.Is(err, away) {
					t.Fatal(err)
				}
			}
			_ = try(fmt.Errorf("x: %w", context.Canceled))
			if err := try(stays); !errors.Is(err, stays) {
				t.Fatal(err)
			}
		}
		state(0, false)
		for range DefaultBreakerFailures {
			_ = try(away)
		}
		state(2, true)
		calls = 0
		for range 100 {
			if err := try(nil); !errors.Is(err, ErrStoreAway) || !Unavailable(err) {
				t.Fatal(err)
			}
		}
		<-time.After(DefaultBreakerPause + time.Millisecond)
		// One probe at a time; a caller who gives up is none.
		for _, outcome := range []error{context.Canceled, away} {
			_ = b.Run(func() error {
				if err := try(nil); !errors.Is(err, ErrStoreAway) {
					t.Error(err)
				}
				state(1, true)
				return outcome
			})
		}
		state(2, true)
		<-time.After(DefaultBreakerPause + time.Millisecond)
		if err := try(nil); err != nil || calls != 1 {
			t.Errorf("%v, %d calls", err, calls)
		}
		state(0, false)
		if lines := strings.Count(log.String(), "\n"); lines != 5 {
			t.Errorf("%d lines of log for 5 changes:\n%s", lines, &log)
		}
	})
	var none *Breaker
	if err := none.Run(func() error { return nil }); err != nil || none.Shaky() {
		t.Error(err)
	}
}
