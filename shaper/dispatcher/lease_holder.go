package dispatcher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// leaseHolder holds this process's leases of one bucket, from the claim until they are settled, and extends them.
type leaseHolder struct {
	*bucketConn
	guard    *poisonGuard // shared by all buckets: a crash affects the whole process
	extender helper       // extends leases

	endHeartbeat context.CancelFunc // stops the extension of leases

	mu          sync.Mutex
	jobs        map[string]*leased // by id: claimed and not settled yet
	unknown     string             // id of a claim whose reply has not arrived, "" for none
	interrupted bool               // new deliveries are cancelled too
}

func newLeaseHolder(c *bucketConn, guard *poisonGuard) *leaseHolder {
	h := &leaseHolder{bucketConn: c, guard: guard, jobs: make(map[string]*leased)}
	h.extender.within, h.endHeartbeat = context.WithCancel(c.life)
	h.extender.do = h.heartbeat
	return h
}

// hold records jobs as ours, so that the heartbeat extends their leases. If a job is under way here already, it was returned and claimed again: the
// older delivery has lost its lease, and is cancelled.
func (h *leaseHolder) hold(jobs ...*leased) {
	if len(jobs) == 0 { // needs no heartbeat
		return
	}
	h.mu.Lock()
	for _, job := range jobs {
		if older := h.jobs[job.ID]; older != nil && older.cancel != nil {
			older.cancel(errLeaseLost)
		}
		h.jobs[job.ID] = job
	}
	h.mu.Unlock()
	h.extender.begin()
}

// forget releases a job whose outcome is settled, or lost.
func (h *leaseHolder) forget(job *leased) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guard.leave(job)
	if h.jobs[job.ID] == job { // not a later claim of the same job
		delete(h.jobs, job.ID)
	}
	if job.ended != nil {
		close(job.ended)
	}
}

// delivering records how to cancel the delivery of jobs. It cancels at once jobs whose leases are lost already, and all jobs after interrupt.
func (h *leaseHolder) delivering(jobs request, cancel context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	jobs.withCancel(cancel)
	for _, job := range jobs {
		switch {
		case h.jobs[job.ID] != job:
			job.cancel(errLeaseLost)
		case h.interrupted:
			job.cancel(errStopped)
		}
	}
}

// interrupt cancels running and later deliveries, and returns how many are running.
func (h *leaseHolder) interrupt() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupted = true
	count := 0
	for _, job := range h.jobs {
		if job.cancel != nil {
			job.cancel(errStopped)
			count++
		}
	}
	return count
}

func (h *leaseHolder) holds(job *leased) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jobs[job.ID] == job
}

// now returns the jobs held, and the claim whose reply has not arrived.
func (h *leaseHolder) now() (jobs []*leased, claimID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.jobs)), h.unknown
}

func (h *leaseHolder) holdsNothing() bool {
	jobs, claimID := h.now()
	return len(jobs) == 0 && claimID == ""
}

// setUnanswered records the claim whose reply has not arrived, "" for none. Its jobs are leased to this process, which does not know them: the
// heartbeat extends their leases by the id of the claim. It starts the heartbeat only if the reply may take as long as a heartbeat. So the claims of
// an idle bucket need none.
func (h *leaseHolder) setUnanswered(claimID string, patience time.Duration) {
	h.mu.Lock()
	h.unknown = claimID
	h.mu.Unlock()
	if claimID != "" && patience >= h.heartbeatEvery() {
		h.extender.begin()
	}
}

// keepUnanswered starts the heartbeat for the leases of a failed claim, if its reply is missing.
func (h *leaseHolder) keepUnanswered() {
	if !h.holdsNothing() {
		h.extender.begin()
	}
}

// heartbeat extends the leases of all jobs held and of the claim under way, three times a lease, until there are none or ctx ends. A delivery whose
// lease is lost is cancelled: another process has the job.
func (h *leaseHolder) heartbeat(ctx context.Context) {
	for sleep(ctx, h.heartbeatEvery()); !h.extender.ends(h.holdsNothing); sleep(ctx, h.heartbeatEvery()) {
		jobs, claimID := h.now()
		for atMost := heartbeatBatch; len(jobs) > 0 || claimID != ""; {
			n := min(len(jobs), atMost)
			began := time.Now()
			switch err := h.extend(ctx, jobs[:n], claimID); {
			case err == nil:
				h.outage.worked(ctx, began, h.lease)
			case n > 1 && lua.IsTooLarge(err):
				atMost = n / 2
				continue
			case ctx.Err() == nil:
				h.outage.failed(ctx, began, err)
			}
			jobs, claimID = jobs[n:], ""
		}
	}
}

// extend extends the leases of jobs and of a claim, and cancels the deliveries whose leases are lost.
func (h *leaseHolder) extend(ctx context.Context, jobs []*leased, claimID string) error {
	args := make([]any, 0, 3+3*len(jobs))
	args = append(args, h.lease.Microseconds(), h.dispatcher, claimID)
	for _, job := range jobs {
		args = append(args, job.ID, job.epoch, job.claim)
	}
	return h.run(ctx, h.store, lua.Extend, nil, func(r *lua.Reader) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, job := range jobs {
			if r.Int() != 0 || r.Err() != nil {
				continue
			}
			h.guard.leave(job)
			if h.jobs[job.ID] != job || job.cancel == nil { // a job settled meanwhile is not lost
				continue
			}
			job.cancel(errLeaseLost)
			if job.handedOver != nil { // started elsewhere, or returned
				delete(h.jobs, job.ID)
			}
		}
	}, args...)
}

// poisonGuard lets a process have only one job on its last chance at a time, over all its buckets. One more crash makes that job poison, and a crash
// is charged to every job of the process. The guard holds the job from the claim until Redis has its outcome or has returned the lease: a crash is
// charged to it until then. See claim.lua.
type poisonGuard struct {
	mu  sync.Mutex
	job *leased
}

// free reports whether a claim may ask for such a job.
func (g *poisonGuard) free() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.job == nil
}

// take reports whether the job may be sent: not if a concurrent claim got another such job.
func (g *poisonGuard) take(job *leased) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != nil {
		return false
	}
	g.job = job
	return true
}

// leave frees the guard if it holds this job.
func (g *poisonGuard) leave(job *leased) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job == job {
		g.job = nil
	}
}
