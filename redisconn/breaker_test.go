package redisconn

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
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		now := BreakerClosed
		b := NewBreaker(BreakerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), OnChange: func(state BreakerState) { now = state }})
		calls := 0
		try := func(result error) error {
			return b.Run(func() error {
				calls++
				return result
			})
		}
		state := func(want BreakerState, shaky bool) {
			t.Helper()
			if now != want || b.Shaky() != shaky {
				t.Errorf("state %v, shaky %t; want %v", now, b.Shaky(), want)
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
		state(BreakerClosed, false)
		for range DefaultBreakerFailures {
			_ = try(away)
		}
		state(BreakerOpen, true)
		calls = 0
		for range 100 {
			if err := try(nil); !errors.Is(err, ErrBreakerOpen) || !Unavailable(err) {
				t.Fatal(err)
			}
		}
		<-time.After(DefaultBreakerPause + time.Millisecond)
		// One probe at a time; a caller who gives up is none.
		for _, outcome := range []error{context.Canceled, away} {
			_ = b.Run(func() error {
				if err := try(nil); !errors.Is(err, ErrBreakerOpen) {
					t.Error(err)
				}
				state(BreakerHalfOpen, true)
				return outcome
			})
		}
		state(BreakerOpen, true)
		<-time.After(DefaultBreakerPause + time.Millisecond)
		if err := try(nil); err != nil || calls != 1 {
			t.Errorf("%v, %d calls", err, calls)
		}
		state(BreakerClosed, false)
		if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "after=2.002s") {
			t.Errorf("%d lines of log of an outage, want one of its begin and one of its end:\n%s", lines, &log)
		}
	})
	var none *Breaker
	if err := none.Run(func() error { return nil }); err != nil || none.Shaky() {
		t.Error(err)
	}
}

// An open breaker names the failure of Redis: callers hear that it is full, not that it is unreachable.
func TestBreakerNamesTheFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := NewBreaker(BreakerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		fail := func(err error, want Failure) {
			t.Helper()
			for range DefaultBreakerFailures {
				_ = b.Run(func() error { return err })
			}
			got := b.Run(func() error { return nil })
			if !errors.Is(got, ErrBreakerOpen) || FailureOf(got) != want || ReplyLost(got) {
				t.Errorf("%v: %v is %v, want %v", err, got, FailureOf(got), want)
			}
			time.Sleep(DefaultBreakerPause + time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
		}
		fail(answerOf("OOM command not allowed"), Full)
		if !strings.Contains(log.String(), "OOM command not allowed") {
			t.Error(log.String())
		}
		fail(fmt.Errorf("script enqueue: %w", answerOf("NOPERM this user has no permissions")), Forbidden)
		fail(context.DeadlineExceeded, Unreachable)
	})
}
