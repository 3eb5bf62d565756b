package dispatcher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// leaseHolder has the leases of one bucket that belong to this process, from the claim until they are settled, and extends them.
type leaseHolder struct {
	*bucketConn
	guard *poisonGuard // shared by all buckets: the process is one
	beat  helper       // extends leases

	endHeartbeat context.CancelFunc // no lease is extended any more

	mu          sync.Mutex
	jobs        map[string]*leased // by id: claimed and not settled yet
	unknown     string             // id of the claim whose answer has not arrived, "" none
	interrupted bool               // deliveries that begin are cancelled too
}

func newLeaseHolder(c *bucketConn, guard *poisonGuard) *leaseHolder {
	h := &leaseHolder{bucketConn: c, guard: guard, jobs: make(map[string]*leased)}
	h.beat.within, h.endHeartbeat = context.WithCancel(c.life)
	h.beat.do = h.heartbeat
	return h
}

// hold notes jobs as ours, so that the heartbeat keeps their leases. A job that
// is under way here already was taken back and came again: the older delivery
// has lost its lease.
func (h *leaseHolder) hold(jobs ...*leased) {
	if len(jobs) == 0 { // none is a reason for a heartbeat
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
	h.beat.begin()
}

// forget lets go of a job whose outcome is settled, or lost.
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

// delivering notes how the delivery of jobs is cancelled. Those whose leases are lost already, and all after interrupt, are cancelled at once.
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

// interrupt cancels what still runs, and what begins later, and returns how many run.
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

// now returns what is held: the jobs, and the claim whose answer has not arrived.
func (h *leaseHolder) now() (jobs []*leased, claimID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.jobs)), h.unknown
}

func (h *leaseHolder) holdsNothing() bool {
	jobs, claimID := h.now()
	return len(jobs) == 0 && claimID == ""
}

// setUnanswered notes the claim whose answer has not arrived, "" if there is none. Its jobs are leased to this process, which does not know
// them: the heartbeat extends their leases by the id of the claim. It begins before the answer is there only where that may take as long as a
// heartbeat: the claims of an idle bucket need none.
func (h *leaseHolder) setUnanswered(claimID string, patience time.Duration) {
	h.mu.Lock()
	h.unknown = claimID
	h.mu.Unlock()
	if claimID != "" && patience >= h.heartbeatEvery() {
		h.beat.begin()
	}
}

// keepUnanswered has the heartbeat extend the leases of a claim that failed, if its answer did not come.
func (h *leaseHolder) keepUnanswered() {
	if !h.holdsNothing() {
		h.beat.begin()
	}
}

// heartbeat extends the leases of all jobs held and of the claim under way, three times a lease, until there are none or ctx ends. A delivery
// whose lease is lost is cancelled: another process has it.
func (h *leaseHolder) heartbeat(ctx context.Context) {
	for sleep(ctx, h.heartbeatEvery()); !h.beat.ends(h.holdsNothing); sleep(ctx, h.heartbeatEvery()) {
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
			if h.jobs[job.ID] != job || job.cancel == nil { // settled meanwhile is not lost
				continue
			}
			job.cancel(errLeaseLost)
			if job.handedOver != nil { // started elsewhere, or taken back
				delete(h.jobs, job.ID)
			}
		}
	}, args...)
}

// poisonGuard lets a process have one job on its last chance at a time, over all its buckets. One more crash makes
// that job poison, and a crash is charged to every job that the process has. The guard has the job from the claim
// until Redis has its outcome or has taken the lease back: until then a crash is charged to it. See claim.lua.
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

// take reports whether the job may go: it may not if two claims were under way.
func (g *poisonGuard) take(job *leased) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != nil {
		return false
	}
	g.job = job
	return true
}

// leave lets another job have the last chance, if this is the one.
func (g *poisonGuard) leave(job *leased) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job == job {
		g.job = nil
	}
}
