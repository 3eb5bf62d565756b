package shaper_test

import (
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// What was before a redrive is told from what Redis keeps of the job: deliveries that died before are among those that are lost, and the last response has a
// cause until a later delivery ends.
func TestBeforeRedrive(t *testing.T) {
	t.Parallel()
	ended := func(number int, result shaper.Result) shaper.JobAttempt {
		return shaper.JobAttempt{Number: number, Result: result}
	}
	dead := shaper.LastResponse{Cause: shaper.CausePermanent}
	for what, c := range map[string]struct {
		job        shaper.JobInfo
		deliveries int
		cause      string
		redriven   bool
	}{
		"it was never dead":              {job: shaper.JobInfo{State: shaper.StateRetrying, Attempts: 1, Lost: 2, LastAttempts: []shaper.JobAttempt{ended(3, shaper.ResultRetry)}}},
		"it is dead":                     {job: shaper.JobInfo{State: shaper.StateDead, Attempts: 1, Last: dead, LastAttempts: []shaper.JobAttempt{ended(1, shaper.ResultDead)}}},
		"redriven":                       {shaper.JobInfo{State: shaper.StateQueued, Lost: 2, Last: dead, LastAttempts: []shaper.JobAttempt{ended(2, shaper.ResultDead)}}, 2, dead.Cause, true},
		"no attempts are kept":           {shaper.JobInfo{State: shaper.StateQueued, Lost: 2, Last: dead}, 2, dead.Cause, true},
		"its dispatcher died since":      {shaper.JobInfo{State: shaper.StateQueued, Lost: 3, Crashes: 1, Last: dead}, 2, dead.Cause, true},
		"it was dead before it was sent": {shaper.JobInfo{State: shaper.StateQueued, Last: shaper.LastResponse{Cause: shaper.CauseExpired}}, 0, shaper.CauseExpired, true},
		"a delivery failed since": {shaper.JobInfo{State: shaper.StateRetrying, Attempts: 1, Lost: 2, LastAttempts: []shaper.JobAttempt{
			ended(2, shaper.ResultDead), ended(3, shaper.ResultRetry)}}, 2, "", true},
		"it is dead again": {shaper.JobInfo{State: shaper.StateDead, Attempts: 1, Lost: 2, Last: dead, LastAttempts: []shaper.JobAttempt{
			ended(2, shaper.ResultDead), ended(3, shaper.ResultDead)}}, 2, "", true},
		"and redriven again": {shaper.JobInfo{State: shaper.StateQueued, Lost: 3, Last: dead, LastAttempts: []shaper.JobAttempt{
			ended(2, shaper.ResultDead), ended(3, shaper.ResultDead)}}, 3, dead.Cause, true},
	} {
		if n, cause, redriven := c.job.BeforeRedrive(); n != c.deliveries || cause != c.cause || redriven != c.redriven {
			t.Errorf("%s: %d deliveries, cause %q, redriven %v; want %d, %q, %v", what, n, cause, redriven, c.deliveries, c.cause, c.redriven)
		}
	}
}
