package operator

import (
	"math"
	"time"

	"github.com/tundish-io/tundish/admission"
)

const (
	enough    = 0.9              // of the rate has to succeed
	settling  = 10 * time.Second // what was counted is known after that time
	failsMuch = 0.1              // of attempts that fail: from here on they are a cause
)

// couldSendFor is for how long jobs could have been sent: since the oldest came, the window opened, and a dispatcher started.
func (j *judgement) couldSendFor(age time.Duration) time.Duration {
	begins := []time.Time{j.fleet.ServedSince(j.Name)}
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

// succeedsEnough reports whether the deliveries that succeeded lately are at least 90 % of a rate, since jobs could be sent. A rate of less than one
// in 30 seconds has to have had one within two of its intervals.
func (j *judgement) succeedsEnough(rate admission.Rate) bool {
	perSecond := rate.PerSecond()
	if perSecond <= 0 {
		return false
	}
	need := math.Floor(enough * perSecond * min(j.progress.Window, max(j.busy-settling, 0)).Seconds())
	if need >= 1 {
		return float64(j.progress.Succeeded) >= need
	}
	return j.progress.Succeeded > 0 || j.Now.Sub(j.progress.Last) < j.patience(rate)
}

// patience is the time after which something succeeded, or the rate is missed.
func (j *judgement) patience(rate admission.Rate) time.Duration {
	if perSecond := rate.PerSecond(); perSecond > 0 {
		return j.progress.Window + max(settling, time.Duration(2/perSecond*float64(time.Second)))
	}
	return j.progress.Window + settling
}

// isMuchSlower reports whether so few deliveries have succeeded that it is no chance: an even rate until a finish rises where a few are missing, so
// that jobs are left only if something keeps it from rising.
func (j *judgement) isMuchSlower(rate admission.Rate) bool {
	const part, chance = 0.75, 2 // of the rate; deliveries
	if j.busy < j.patience(rate) {
		return false // what was counted began before
	}
	few := float64(j.progress.Succeeded)+chance < part*rate.PerSecond()*j.progress.Window.Seconds()
	return few || j.progress.Succeeded == 0 && j.Now.Sub(j.progress.Last) >= j.patience(rate)
}
