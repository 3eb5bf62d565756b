package shaper_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	pause := &shaper.Pause{Since: at, By: "anna", Reason: "down"}
	for _, c := range []struct {
		job       shaper.JobInfo
		blockedBy string
		why       string
		earliest  time.Time
	}{
		{shaper.JobInfo{State: shaper.StateQueued, ETA: at}, "[pace]", "it is the next", at},
		{shaper.JobInfo{State: shaper.StateQueued, Position: 3, ETA: at}, "[ahead]", "3 ahead of it", at},
		{shaper.JobInfo{State: shaper.StateQueued, Position: 3, Pause: pause}, "[paused ahead]", "paused since 2023-11-14T22:13:20Z by anna (down); 3 ahead", time.Time{}},
		{shaper.JobInfo{State: shaper.StateScheduled, Due: at, NextSlot: at.Add(-1)}, "[not-before]", "its time has not come", at},
		{shaper.JobInfo{State: shaper.StateScheduled, Due: at, Pause: pause}, "[paused not-before]", "down", time.Time{}},
		{shaper.JobInfo{State: shaper.StateRetrying, Attempts: 2, Due: at, NextSlot: at.Add(1), Last: shaper.LastResponse{Reason: "timeout"}}, "[backoff]",
			"attempt 2 failed (timeout)", at.Add(1)},
		{shaper.JobInfo{State: shaper.StateRetrying, Crashes: shaper.MaxCrashes - 1, Due: at}, "[last-chance]", "died 2 times in a row", at},
		{shaper.JobInfo{State: shaper.StateQueued, InFlight: 9, MaxInFlight: 8, ETA: at}, "[pace max-in-flight]", "9 of at most 8 are in flight", at},
		{shaper.JobInfo{State: shaper.StateInFlight, Pause: pause}, "[]", "a dispatcher has it", time.Time{}},
		{shaper.JobInfo{State: shaper.StateDead, Last: shaper.LastResponse{Cause: shaper.CausePoison}}, "[]", "poison", time.Time{}},
		{shaper.JobInfo{State: shaper.StateDone}, "[]", "", time.Time{}},
	} {
		if got := fmt.Sprint(c.job.BlockedBy()); got != c.blockedBy {
			t.Errorf("%+v: blocked by %s, want %s", c.job, got, c.blockedBy)
		}
		if got := c.job.Why(); !strings.Contains(got, c.why) || (c.why == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", c.job, got, c.why)
		}
		if got := c.job.Earliest(); !got.Equal(c.earliest) {
			t.Errorf("%+v: earliest %s, want %s", c.job, got, c.earliest)
		}
	}
}
