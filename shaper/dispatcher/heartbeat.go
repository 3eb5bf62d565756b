package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
)

func (d *bucketLoop) heartbeatEvery() time.Duration { return d.lease / 3 }

// heartbeatSeen is the time within which every living dispatcher has extended
// its leases.
func (d *bucketLoop) heartbeatSeen() time.Duration { return d.heartbeatEvery() + time.Second }

func (d *bucketLoop) heldNow() []*leased {
	d.mu.Lock()
	defer d.mu.Unlock()
	jobs := make([]*leased, 0, len(d.held))
	for _, job := range d.held {
		jobs = append(jobs, job)
	}
	return jobs
}

func (d *bucketLoop) extend(ctx context.Context, jobs []*leased, claimID string) error {
	args := make([]any, 0, 3+3*len(jobs))
	args = append(args, d.lease.Microseconds(), d.dispatcher, claimID)
	for _, job := range jobs {
		args = append(args, job.ID, job.epoch, job.claim)
	}
	reply, err := d.store.Run(ctx, lua.Extend, d.Keys.Of(lua.Extend), args...)
	if err != nil {
		return fmt.Errorf("extend leases of bucket %q: %w", d.Name, err)
	}
	extended, err := lua.IntegersFor(reply, len(jobs))
	if err != nil {
		return fmt.Errorf("extend leases of bucket %q: %w", d.Name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, job := range jobs {
		if extended[i] == 0 {
			d.guard.leave(job)
		}
		// Settled meanwhile is not lost.
		if extended[i] == 0 && d.held[job.ID] == job && job.cancel != nil {
			job.cancel(errLeaseLost)
			if job.handedOver != nil { // started elsewhere, or taken back
				delete(d.held, job.ID)
			}
		}
	}
	return nil
}
