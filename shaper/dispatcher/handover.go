package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// lookAfter is how many jobs that were handed over one look asks after at most: each costs a round trip to their queue.
const lookAfter = 500

// handedOver is what a dispatcher knows of a job that another process is to start.
type handedOver struct {
	asked time.Time // when its queue was asked after it last, or got it
	how   *shaper.Handover
}

// handOver keeps the lease of a job without a worker. The heartbeat extends the lease until another process starts the job,
// which takes the lease over: see lua/start.lua.
func (d *bucketLoop) handOver(job *leased, outcome shaper.Outcome) {
	d.store.Metrics.CountOutcome(d.Name, outcome.Result, outcome, time.Since(job.departed))
	d.guard.leave(job) // a crash of this process is none of the job's
	d.mu.Lock()
	defer d.mu.Unlock()
	job.handedOver = &handedOver{asked: time.Now(), how: outcome.Handover}
	d.begin(&d.asks)
}

// handsOver reports whether the jobs of the bucket run in other processes.
func (d *bucketLoop) handsOver() bool {
	_, ok := (*d.worker.Load()).(shaper.HandsOver)
	return ok
}

// lookAfterHandedOver looks three times a lease until no job is handed over, or ctx ends. It is no part of the heartbeat: a queue that
// does not answer must not stop that.
func (d *bucketLoop) lookAfterHandedOver(ctx context.Context) {
	for sleep(ctx, d.heartbeatEvery()); !d.ends(&d.asks, d.handedNothingOver); sleep(ctx, d.heartbeatEvery()) {
		d.askAfterHandedOver(ctx)
	}
}

// handedNothingOver reports whether no job is handed over. The caller holds mu.
func (d *bucketLoop) handedNothingOver() bool {
	for _, job := range d.held {
		if job.handedOver != nil {
			return false
		}
	}
	return true
}

// askAfterHandedOver settles jobs that were handed over and have left their queue without a start. It asks after those
// that it has not asked after for the longest time, and gives up at the first fault, because their queues are mostly one.
func (d *bucketLoop) askAfterHandedOver(ctx context.Context) {
	look, cancel := context.WithTimeout(ctx, d.heartbeatEvery()/2)
	defer cancel()
	for _, job := range d.leastAskedAfter(time.Now().Add(-d.heartbeatEvery())) {
		outcome, isLeft, err := job.handedOver.how.Left(look)
		switch {
		case err != nil && look.Err() != nil: // no time is left: the next look goes on
			return
		case err != nil:
			d.log.WarnContext(ctx, "the queue that jobs were handed over to does not answer", "job", job.ID, "error", err)
			return
		case !isLeft:
			continue
		}
		// It may have been started, and settled, since the last heartbeat: then the lease is not ours any more.
		if err := d.extend(ctx, []*leased{job}, ""); err != nil || !d.holds(job) {
			continue
		}
		d.settle(job, outcome)
	}
}

// leastAskedAfter returns the jobs that were not asked after since a time, at most lookAfter, and notes that they are now.
func (d *bucketLoop) leastAskedAfter(since time.Time) []*leased {
	d.mu.Lock()
	defer d.mu.Unlock()
	var jobs []*leased
	for _, job := range d.held {
		if h := job.handedOver; h != nil && h.how != nil && h.how.Left != nil && h.asked.Before(since) {
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *leased) int { return a.handedOver.asked.Compare(b.handedOver.asked) })
	jobs = jobs[:min(len(jobs), lookAfter)]
	for _, job := range jobs {
		job.handedOver.asked = time.Now()
	}
	return jobs
}

func (d *bucketLoop) holds(job *leased) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held[job.ID] == job
}
