package operator

import (
	"math"
	"time"

	"github.com/tundish-io/tundish/admission"
)

const (
	enough    = 0.9              // of the rate has to succeed
	settling  = 10 * time.Second // after that time the counts are known
	failsMuch = 0.1              // of attempts that fail: from here on they are a cause
)

// couldSendFor returns how long jobs could have been sent: since the oldest was enqueued, the window opened, a pause ended, the
// last changes of settings began, and a dispatcher started.
func (j *judgement) couldSendFor(age time.Duration) time.Duration {
	begins := []time.Time{j.fleet.ServedSince(j.Name), j.resumed, j.changing}
	if j.Hours != nil {
		begins = append(begins, j.Hours.Opened)
	}
	for _, at := range begins {
		if !at.IsZero() {
			age = min(age, max(j.Now.Sub(at), 0))
		}
	}
	return age
}

// lately returns the rate, in requests a second, that deliveries of the counted period had to match. An even rate until a finish rises to make up for
// what it misses. So the target comes from the jobs and the time at the beginning of that period.
func (j *judgement) lately(rate admission.Rate) float64 {
	h := j.Hours
	if h == nil || !h.Open || h.Finish.IsZero() || h.FinishJobs == 0 {
		return rate.PerSecond()
	}
	left := h.Finish.Sub(j.Now) + min(j.progress.Window, j.busy)
	if left <= 0 {
		return rate.PerSecond()
	}
	return min(rate.PerSecond(), float64(h.FinishJobs+j.progress.Gone)/left.Seconds())
}

// succeedsEnough reports whether the recent successful deliveries are at least 90 % of the target, since jobs could be sent. A rate below one in 30
// seconds must have had one within two of its intervals.
func (j *judgement) succeedsEnough() bool {
	if j.asked <= 0 {
		return false
	}
	need := math.Floor(enough * j.asked * min(j.progress.Window, max(j.busy-settling, 0)).Seconds())
	if need >= 1 {
		return float64(j.progress.Succeeded) >= need
	}
	return j.progress.Succeeded > 0 || j.Now.Sub(j.progress.Last) < j.patience()
}

// patience returns the time within which a delivery has to succeed, or the rate is missed.
func (j *judgement) patience() time.Duration {
	if j.asked > 0 {
		return j.progress.Window + max(settling, time.Duration(2/j.asked*float64(time.Second)))
	}
	return j.progress.Window + settling
}

// isFirst reports whether nothing has succeeded since jobs could be sent.
func (j *judgement) isFirst() bool { return j.progress.Last.Before(j.Now.Add(-j.busy)) }

// isMuchSlower reports whether so few deliveries have succeeded that it is no chance: an even rate until a finish rises where a few are missing, so
// that jobs are left only if something keeps it from rising.
func (j *judgement) isMuchSlower() bool {
	const part, chance = 0.75, 2 // of the rate; deliveries
	if j.busy < j.patience() {
		return false // the counted period began earlier
	}
	few := float64(j.progress.Succeeded)+chance < part*j.asked*j.progress.Window.Seconds()
	return few || j.progress.Succeeded == 0 && j.Now.Sub(j.progress.Last) >= j.patience()
}
