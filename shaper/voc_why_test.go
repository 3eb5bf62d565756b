package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	pause := &Pause{Since: at, By: "anna", Reason: "down"}
	for _, c := range []struct {
		job      JobInfo
		holds    string
		why      string
		earliest time.Time
	}{
		{JobInfo{State: StateQueued, ETA: at}, "[pace]", "it is the next", at},
		{JobInfo{State: StateQueued, Position: 3, ETA: at}, "[ahead]", "3 ahead of it", at},
		{JobInfo{State: StateQueued, Position: 3, Pause: pause}, "[paused ahead]", "paused since 2023-11-14T22:13:20Z by anna (down); 3 ahead", time.Time{}},
		{JobInfo{State: StateScheduled, Due: at, NextSlot: at.Add(-1)}, "[not-before]", "its time has not come", at},
		{JobInfo{State: StateScheduled, Due: at, Pause: pause}, "[paused not-before]", "down", time.Time{}},
		{JobInfo{State: StateRetrying, Attempts: 2, Due: at, NextSlot: at.Add(1), Last: LastResponse{Reason: "timeout"}}, "[backoff]",
			"attempt 2 failed (timeout)", at.Add(1)},
		{JobInfo{State: StateRetrying, Crashes: MaxCrashes - 1, Due: at}, "[last-chance]", "died 2 times in a row", at},
		{JobInfo{State: StateQueued, InFlight: 9, MaxInFlight: 8, ETA: at}, "[pace max-in-flight]", "9 of at most 8 are in flight", at},
		{JobInfo{State: StateInFlight, Pause: pause}, "[]", "a dispatcher has it", time.Time{}},
		{JobInfo{State: StateDead, Last: LastResponse{Cause: CausePoison}}, "[]", "poison", time.Time{}},
		{JobInfo{State: StateDone}, "[]", "", time.Time{}},
	} {
		if got := fmt.Sprint(c.job.Holds()); got != c.holds {
			t.Errorf("%+v: holds %s, want %s", c.job, got, c.holds)
		}
		if got := c.job.Why(); !strings.Contains(got, c.why) || (c.why == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", c.job, got, c.why)
		}
		if got := c.job.Earliest(); !got.Equal(c.earliest) {
			t.Errorf("%+v: earliest %s, want %s", c.job, got, c.earliest)
		}
	}
}
