package producer

import (
	"context"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// Result is how a job ended, and the response to it.
type Result = shaper.JobResult

// RefusedError says that a job was refused.
type RefusedError struct{ Receipt shaper.Receipt }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("job %q was refused (%s): %s", e.Receipt.ID, e.Receipt.Refusal.Reason, e.Receipt.Refusal.Detail)
}

// Do enqueues a job and waits until it has ended: done or dead. The result has the downstream's response.
//
// A refused job is a [*RefusedError]. If ctx ends, the job continues, and the error says so; [Client.Cancel] cancels a job that has not been sent. In
// each case the result has the job's id. Do takes the round trips of an Enqueue and one more. All waiters of a process share one round trip a second
// for each bucket.
func (c *Client) Do(ctx context.Context, job shaper.Job) (Result, error) {
	receipt, awaited, err := c.Await(ctx, job)
	if err != nil {
		return Result{ID: receipt.ID, Bucket: job.Bucket}, err
	}
	defer awaited.Stop()
	if receipt.Refusal != nil {
		return Result{ID: receipt.ID, Bucket: job.Bucket}, &RefusedError{receipt}
	}
	return awaited.Result(ctx)
}

// Await enqueues a job, as [Client.Enqueue] does, and returns the handle that waits for its result. It returns the errors of Enqueue. The caller must
// call [Awaited.Stop], also after a refusal.
func (c *Client) Await(ctx context.Context, job shaper.Job) (shaper.Receipt, *Awaited, error) {
	return c.await(ctx, &Awaited{answers: c.answers, there: make(chan struct{}, 1)}, job)
}

// AwaitTicket is [Client.Await] for a job that this process sends itself: the handle waits for the job's ticket, see [Awaited.Ticket]. The payload
// and the headers of the job stay in this process. It is for package dispatcher, whose Permits start the job by its ticket.
func (c *Client) AwaitTicket(ctx context.Context, job shaper.Job) (shaper.Receipt, *Awaited, error) {
	job.Payload = nil
	return c.await(ctx, &Awaited{answers: c.answers, there: make(chan struct{}, 1), tickets: make(chan string, 1)}, job)
}

func (c *Client) await(ctx context.Context, awaited *Awaited, job shaper.Job) (shaper.Receipt, *Awaited, error) {
	receipts, err := c.enqueue(ctx, awaited, []shaper.Job{job})
	var receipt shaper.Receipt
	if len(receipts) > 0 {
		receipt = receipts[0]
	}
	if err != nil {
		awaited.Stop()
		return receipt, nil, err
	}
	awaited.mayBeThere = receipt.Duplicate
	return receipt, awaited, nil
}

// Result returns how a job ended. A bucket that keeps results ([shaper.ResultSettings]) has it for its retention. A result with a waiter is
// there for 30 s, and for 5 s once the waiting process has read it. Before the end it is [shaper.ErrNotEnded], later
// [shaper.ErrNoResult], and [shaper.ErrNotFound] if the bucket remembers no such job. One round trip.
func (c *Client) Result(ctx context.Context, bucket, id string) (Result, error) {
	return c.store.Result(ctx, bucket, id)
}

// Waiting lists the jobs that are awaited now, as "bucket id", once for each waiter, in no order.
func (c *Client) Waiting() []string {
	c.answers.mu.Lock()
	defer c.answers.mu.Unlock()
	var names []string
	for name, some := range c.answers.waiting {
		names = append(names, slices.Repeat([]string{name}, len(some))...)
	}
	return names
}
