package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// askAtOnce bounds the handed-over jobs that one look queries: each costs a round trip to their queue.
const askAtOnce = 500

// handovers keeps the leases of jobs that another process is to start, and polls the queue of these jobs.
type handovers struct {
	*bucketConn
	held    *leaseHolder
	settler *settler
	asks    helper
}

func newHandovers(settler *settler) *handovers {
	o := &handovers{bucketConn: settler.bucketConn, held: settler.held, settler: settler}
	o.asks.within, o.asks.do = o.life, o.lookAfter
	return o
}

// handedOver is the state of a job that another process is to start.
type handedOver struct {
	asked time.Time // when its queue was last polled for it, or got it
	how   *shaper.Handover
}

// add keeps the lease of a job without a worker. The heartbeat extends the lease until another process starts the job and takes the lease over: see
// lua/start.lua.
func (o *handovers) add(job *leased, outcome shaper.Outcome) {
	o.store.Metrics.CountOutcome(o.Name, outcome.Result, outcome, time.Since(job.departed), job.traceID)
	o.store.Metrics.CountSucceeded(o.Name, 1) // the other process starts it when it can
	o.held.guard.leave(job)                   // a crash of this process is not the job's fault
	o.held.mu.Lock()
	job.handedOver = &handedOver{asked: time.Now(), how: outcome.Handover}
	o.held.mu.Unlock()
	o.asks.begin()
}

// lookAfter polls three times a lease until no job is handed over, or ctx ends. It is separate from the heartbeat, which an unresponsive queue must
// not stop.
func (o *handovers) lookAfter(ctx context.Context) {
	for sleep(ctx, o.heartbeatEvery()); !o.asks.ends(o.areNone); sleep(ctx, o.heartbeatEvery()) {
		o.ask(ctx)
	}
}

// areNone reports whether no job is handed over.
func (o *handovers) areNone() bool {
	o.held.mu.Lock()
	defer o.held.mu.Unlock()
	for _, job := range o.held.jobs {
		if job.handedOver != nil {
			return false
		}
	}
	return true
}

// ask settles the handed-over jobs that were removed from their queue without a start. It begins with the jobs that were not polled for longest. It
// stops at the first error, because most jobs share a queue.
func (o *handovers) ask(ctx context.Context) {
	look, cancel := context.WithTimeout(ctx, o.heartbeatEvery()/2)
	defer cancel()
	for _, job := range o.leastAskedAfter(time.Now().Add(-o.heartbeatEvery())) {
		outcome, isLeft, err := job.handedOver.how.Left(look)
		switch {
		case err != nil && look.Err() != nil: // no time is left: the next look continues
			return
		case err != nil:
			o.log.WarnContext(ctx, "the queue that jobs were handed over to does not answer", "job", job.ID, "error", err)
			return
		case !isLeft:
			continue
		}
		// It may have been started and settled since the last heartbeat: then the lease is no longer ours.
		if err := o.held.extend(ctx, []*leased{job}, ""); err != nil || !o.held.holds(job) {
			continue
		}
		o.settler.settle(job, outcome)
	}
}

// leastAskedAfter returns up to askAtOnce jobs that were not polled since a time, and marks them as polled now.
func (o *handovers) leastAskedAfter(since time.Time) []*leased {
	o.held.mu.Lock()
	defer o.held.mu.Unlock()
	var jobs []*leased
	for _, job := range o.held.jobs {
		if h := job.handedOver; h != nil && h.how != nil && h.how.Left != nil && h.asked.Before(since) {
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *leased) int { return a.handedOver.asked.Compare(b.handedOver.asked) })
	jobs = jobs[:min(len(jobs), askAtOnce)]
	for _, job := range jobs {
		job.handedOver.asked = time.Now()
	}
	return jobs
}
