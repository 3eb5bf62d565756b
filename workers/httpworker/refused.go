package httpworker

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// refused decides whether a 401 is the fault of the credentials, which the worker sets itself, or of the job. It is safe for concurrent use. The zero
// value is ready.
//
// While another job is accepted, a 401 is about its job. While the API answers 401 to several jobs and accepts none, it is about the credentials. The
// first 401 is ambiguous, so its job is retried. With bad credentials jobs are retried as long as it takes: only max_age makes a job a dead letter.
type refused struct {
	open atomic.Bool // there was a 401 since the last job that was accepted

	mu       sync.Mutex
	since    time.Time // of the first of these
	job      string    // that had it
	several  bool      // and another job too
	probes   int       // that were refused since
	nextTry  time.Time
	doubtful map[string]bool // jobs that were retried after the first 401
}

const (
	refusedPause = time.Second      // before the first probe; doubled with each probe that is refused,
	longestProbe = 30 * time.Second // up to this

	// refusedAlone is how long a job is retried if it is the only one. Kubernetes takes up to two minutes to replace the file of a secret.
	refusedAlone = 3 * time.Minute

	mostDoubtful = 1000
)

// accepts records that the API did not refuse the credentials of a request.
func (r *refused) accepts() {
	if !r.open.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open.Store(false)
	r.several, r.probes = false, 0
}

// refuses returns the result of a job after a 401: a hold of the returned length, a retry, or dead.
func (r *refused) refuses(job string, now time.Time) (result shaper.Result, hold time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open.Load() {
		if r.doubtful[job] { // others were accepted meanwhile
			delete(r.doubtful, job)
			return shaper.ResultDead, 0
		}
		r.open.Store(true)
		r.since, r.job, r.nextTry = now, job, now
	}
	r.several = r.several || job != r.job
	if r.several {
		if !now.Before(r.nextTry) { // otherwise it was under way with the probe
			r.nextTry = now.Add(min(refusedPause<<min(r.probes, 5), longestProbe))
			r.probes++
		}
		return shaper.ResultHeld, r.nextTry.Sub(now)
	}
	if now.Sub(r.since) >= refusedAlone {
		delete(r.doubtful, job)
		return shaper.ResultDead, 0
	}
	if r.doubtful == nil || len(r.doubtful) >= mostDoubtful {
		r.doubtful = map[string]bool{}
	}
	r.doubtful[job] = true
	return shaper.ResultRetry, 0
}

// holdsSecret reports whether the credentials are the worker's: the API may refuse them to all jobs.
func (w *Worker) holdsSecret(s *sent) bool {
	return s.token != nil || s.auth.Bearer != "" || s.auth.Basic != Basic{} || s.auth.Header != Header{} || len(w.credentials.files) > 0
}

// noteStatus records the status of a response to a request with credentials. A server error says nothing about them.
func (w *Worker) noteStatus(status int) {
	if status >= http.StatusOK && status < http.StatusInternalServerError && status != http.StatusUnauthorized {
		w.refused.accepts()
	}
}

// judgeRefused returns the outcome of a 401 to credentials that are still the same. A status for which the bucket has a rule, or that names a time, was
// judged before. A client that waits for its response gets the 401 at once: other jobs wait.
func (w *Worker) judgeRefused(outcome shaper.Outcome, attempt *shaper.Attempt) shaper.Outcome {
	if outcome.Result != shaper.ResultDead || outcome.Reason != "http_401" {
		return outcome
	}
	result, hold := w.refused.refuses(attempt.ID, time.Now())
	if attempt.Once {
		return outcome
	}
	outcome.Result = result
	if result == shaper.ResultHeld {
		// The API neither accepted the request nor asks for less, so the rate stays: an accepted outcome would not hold the scope.
		outcome.Reason, outcome.RetryAfter, outcome.Signal, outcome.Used = workers.ReasonCredentials, hold, shaper.SignalNone, shaper.Units{}
		outcome.Detail = "the receiver answers 401 to each job: replace the credentials of the bucket"
	}
	return outcome
}
