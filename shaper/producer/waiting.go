package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// sendInTime puts the jobs of a call into the queues of their buckets, and waits until each is answered. After the client's timeout it takes back
// jobs whose turn has not come: they are refused if Redis has answered others meanwhile, else they end with an error of Redis. An error says that ctx
// ended earlier.
func (c *Client) sendInTime(ctx context.Context, shared *call) error {
	var late <-chan time.Time
	if queue(shared.queued) {
		timer := time.NewTimer(c.store.Timeout)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-shared.done:
			return nil
		case <-late:
			late = nil // calls under way have a timeout of their own
			c.takeBack(shared)
		case <-ctx.Done():
			if all := len(shared.queued); c.takeBack(shared) == all {
				return fmt.Errorf("enqueue: nothing is stored, as the call ended before its turn: %w", context.Cause(ctx))
			}
			return fmt.Errorf("enqueue: the outcome is unknown: %w", context.Cause(ctx))
		}
	}
}

// queue puts the jobs of a call into the queues of their buckets. It reports whether jobs wait there.
func queue(entries []*entry) (waits bool) {
	for i := 0; i < len(entries); {
		end := i + 1
		for end < len(entries) && entries[end].bucket == entries[i].bucket {
			end++
		}
		b := entries[i].bucket
		for _, t := range entries[i:end] {
			t.answered = b.answered.Load()
		}
		waits = b.queue.Add(entries[i:end]...) || waits
		i = end
	}
	return waits
}

// takeBack ends the jobs of a call that wait for their turn, and returns how many these were. They are not stored.
func (c *Client) takeBack(shared *call) (taken int) {
	var last *producerBucket
	for _, t := range shared.queued {
		if t.bucket == last {
			continue
		}
		last = t.bucket
		for _, late := range last.queue.RemoveFunc(func(t *entry) bool { return t.call == shared }) {
			taken++
			if last.answered.Load() == late.answered {
				late.finish(fmt.Errorf("enqueue into bucket %q: nothing is stored: Redis has answered no call for %s: %w", last.Name, c.store.Timeout, context.DeadlineExceeded))
				continue
			}
			*late.receipt = shaper.Receipt{ID: late.job.ID, Bucket: late.job.Bucket, Flow: late.job.Flow, Group: late.job.Group, Refusal: c.tooLate(late)}
			if c.store.Known(last.Name) != nil { // else its series were removed
				c.store.Metrics.CountReceipt(late.receipt)
			}
			late.finish(nil)
		}
	}
	return taken
}

// tooLate refuses a job whose turn did not come in time.
func (c *Client) tooLate(t *entry) *shaper.Refusal {
	return &shaper.Refusal{Reason: shaper.ReasonOverloaded, RetryAfter: time.Second, Detail: fmt.Sprintf(
		"the job is not stored: for %s this process was sending earlier jobs of bucket %q to Redis: retry, and send fewer jobs in parallel", c.store.Timeout, t.job.Bucket)}
}
