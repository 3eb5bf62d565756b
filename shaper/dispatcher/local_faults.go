package dispatcher

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

const (
	faultRound    = 4 // attempts after which the bound changes
	minFaultPause = time.Second
	maxFaultPause = 15 * time.Second
	faultLogEvery = time.Minute // a fault that continues is logged again after this
	faultIsOver   = time.Minute // if it has not occurred for this long
)

// localFaults bounds what a dispatcher claims of a bucket while its own host causes most attempts to fail: see [shaper.Outcome.Local]. Other
// dispatchers take the slots then.
//
// It counts attempts in rounds. If all attempts of a round failed this way, the bound becomes one request, as a probe; if half or more did, it is
// halved. A round without such a failure doubles it, up to the number of workers. After a failed probe nothing is claimed for a pause, which doubles
// up to [maxFaultPause].
//
// The zero value bounds nothing. It is safe for concurrent use.
type localFaults struct {
	mu     sync.Mutex
	limit  int // requests at a time; 0: no bound
	ended  int // attempts of this round
	failed int // of these
	pause  time.Duration
	until  time.Time // of the pause

	since, last time.Time // of the fault; zero: there is none
	fault       shaper.Outcome
}

// faultLog logs faults of the host, for all buckets of a dispatcher together: a new one at once, a continuing one once per [faultLogEvery].
type faultLog struct {
	log *slog.Logger

	mu       sync.Mutex
	reason   string // as last logged; "": none
	logged   time.Time
	unlogged int
}

// bound returns how many workers may have a request.
func (f *localFaults) bound(workers int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit == 0 {
		return workers
	}
	return min(f.limit, workers)
}

// pausedUntil returns the time until which nothing is claimed.
func (f *localFaults) pausedUntil() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

// note records the outcome of a request. running is the number of requests, including this one; workers is the number of workers. An attempt that was
// returned for another reason is ignored.
func (f *localFaults) note(log *faultLog, outcome *shaper.Outcome, running, workers int, now time.Time) {
	if outcome.Result == shaper.ResultReturned && !outcome.Local {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !outcome.Local && f.since.IsZero() {
		return // the usual case
	}
	f.ended++
	if outcome.Local {
		f.failed++
		f.last, f.fault = now, *outcome
		if f.since.IsZero() {
			f.since = now
		}
	}
	if f.limit == 0 {
		f.limit = workers
	}
	if f.ended < min(f.limit, faultRound) {
		return
	}
	switch {
	case f.failed == f.ended:
		if f.limit == 1 || f.until.IsZero() {
			f.pause = min(max(2*f.pause, minFaultPause), maxFaultPause)
			f.until = now.Add(f.pause/2 + rand.N(f.pause/2)) //nolint:gosec // jitter
		}
		f.limit = 1
	case 2*f.failed >= f.ended:
		f.limit = max(min(f.limit, running)/2, 1)
	case f.failed == 0:
		f.limit, f.pause, f.until = min(2*f.limit, workers), 0, time.Time{}
		f.ends(log, workers, now)
	}
	f.ended, f.failed = 0, 0
}

// ends ends the fault once all workers may have requests again. f.mu is held.
func (f *localFaults) ends(log *faultLog, workers int, now time.Time) {
	if f.limit < workers {
		return
	}
	log.worked(f.fault.Reason, now.Sub(f.since))
	f.limit, f.since, f.last, f.fault = 0, time.Time{}, time.Time{}, shaper.Outcome{}
}

// failed logs an attempt that this host could not make, unless the same fault was logged recently.
func (l *faultLog) failed(bucket string, outcome *shaper.Outcome, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if outcome.Reason == l.reason && now.Sub(l.logged) < faultLogEvery {
		l.unlogged++
		return
	}
	l.log.Error("this host could not connect: no attempt is spent, and the dispatcher claims less while most attempts end so",
		"bucket", bucket, "reason", outcome.Reason, "detail", cmp.Or(outcome.Private, outcome.Detail), "unlogged", l.unlogged)
	l.reason, l.logged, l.unlogged = outcome.Reason, now, 0
}

// worked logs the end of a fault that was logged.
func (l *faultLog) worked(reason string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != reason {
		return
	}
	l.log.Info("this host connects again", "reason", reason, "after", after.Round(time.Millisecond))
	l.reason, l.unlogged = "", 0
}

// current describes the fault while it bounds claims; "" otherwise.
func (f *localFaults) current(workers int, now time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit == 0 || f.limit >= workers && f.until.IsZero() || now.Sub(f.last) > faultIsOver && f.until.Before(now) {
		return ""
	}
	return f.fault.Reason + ": " + f.fault.Detail
}
