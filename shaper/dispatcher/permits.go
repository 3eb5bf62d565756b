package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Permits let a process send jobs itself, at the pace and within the budgets of their buckets: if it keeps the client's connection, say. Only the
// permit is passed, not the response. A job waits in its bucket like any other, but its payload stays here. A dispatcher claims the job and publishes
// its ticket at once. This process then starts the lease, waits for the slot, sends, and settles.
//
// A permit whose ticket is not started in time is returned. The leases of a process that died expire. Permits are safe for concurrent use.
type Permits struct {
	client *producer.Client
	leases *Leases
	ends   sync.WaitGroup // background work for callers that have gone
}

// NewPermits returns permits. client enqueues the jobs; leases must use the same Redis. Dispatchers of the buckets have to run, here or elsewhere.
func NewPermits(client *producer.Client, leases *Leases) *Permits {
	return &Permits{client: client, leases: leases}
}

// Close waits until all permits are settled and the jobs of callers that gave up are cancelled, for at most five seconds in case Redis is down. Call
// it before the leases and the client are closed, once no caller acquires more.
func (p *Permits) Close() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.ends.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(closeGrace):
	}
}

const closeGrace = 5 * time.Second // see [Permits.Close]

// giveUpWithin is how long this process keeps handling a job whose caller has gone: its ticket may be under way.
const giveUpWithin = 2 * time.Second

// Permit is a permit to send a job once, now. It ends with [Permit.Settle].
type Permit struct {
	permits *Permits
	job     shaper.Job
	receipt shaper.Receipt
	awaited *producer.Awaited // nil: the job has to be enqueued
	lease   *Lease            // nil: it waits for a slot
	done    func()            // called once the permit has ended
	span    permitSpan
}

// Acquire enqueues a job and waits for its slot: when it returns, send at once. The permit is void soon after the slot, see [shaper.Attempt.Depart]
// of [Permit.Attempt]. ctx bounds only the wait; use [Permit.Context] for sending.
//
// The job must have no id: if its ticket is lost three times, it is enqueued again, before all others of its flow. Its payload stays here, and so do
// its headers after they have named its flow. Its end leaves no dead letter.
//
// If the job is refused, the error is a [*producer.RefusedError]. If an operator cancels or purges it, or it expires, the error is a
// [*producer.EndedError]. If ctx ends first, the job is cancelled. While Redis is unavailable, Acquire keeps waiting.
//
// It takes the round trip of an enqueue, which concurrent calls share, and one for the start. All waiting jobs of a bucket share one round trip a
// second.
func (p *Permits) Acquire(ctx context.Context, job shaper.Job) (*Permit, error) {
	if job.ID != "" {
		return nil, &shaper.FieldError{Field: "id", Reason: "a job that waits for a permit gets its id here: leave it out"}
	}
	job.Once = true
	p.ends.Add(1)
	permit := &Permit{permits: p, job: job, done: sync.OnceFunc(p.ends.Done)}
	if err := permit.wait(ctx); err != nil {
		return nil, err
	}
	return permit, nil
}

// Again waits for another permit after a Settle with [shaper.ResultHeld] or [shaper.ResultReturned], which keep the job in its bucket. It returns
// the errors of [Permits.Acquire].
func (p *Permit) Again(ctx context.Context) error {
	if p.lease != nil {
		return errors.New("dispatcher: the permit is not settled yet")
	}
	return p.wait(ctx)
}

// wait waits until the job may be sent. After an error the permit has ended. A job whose tickets were lost was dropped, and is enqueued again.
func (p *Permit) wait(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			p.done()
		}
	}()
	for {
		var ticket string
		if err = p.enqueue(ctx); err == nil {
			ticket, err = p.awaited.Ticket(ctx)
		}
		if ended, isEnded := errors.AsType[*producer.EndedError](err); isEnded {
			p.forget()
			if ended.State == shaper.StateDropped {
				p.job.Priority = shaper.PriorityCritical // its turn had come
				continue
			}
			return err
		}
		if err == nil {
			err = p.start(ctx, ticket)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNotStarted): // it gets another ticket
		default:
			p.giveUp(ctx)
			return err
		}
	}
}

// enqueue enqueues the job, unless it is in its bucket already.
func (p *Permit) enqueue(ctx context.Context) error {
	if p.awaited != nil {
		return nil
	}
	job := p.job
	for wait := minFaultWait; ; wait = min(2*wait, maxFaultWait) {
		receipt, awaited, err := p.permits.client.AwaitTicket(context.WithoutCancel(ctx), job) // so that its outcome is known
		p.receipt = receipt
		switch {
		case err == nil && receipt.Refusal == nil:
			p.awaited = awaited
			return nil
		case err == nil:
			awaited.Stop()
			if receipt.Refusal.Reason == shaper.ReasonIDEnded { // it was enqueued, and this process missed that its turn had come
				return &producer.EndedError{Bucket: receipt.Bucket, ID: receipt.ID, State: receipt.State}
			}
			return &producer.RefusedError{Receipt: receipt}
		case !mayPassSoon(err) || !sleep(ctx, wait/2+rand.N(wait/2)): //nolint:gosec // jitter
			return err
		}
		job.ID = receipt.ID // the same id, so that no job is doubled
	}
}

func (p *Permit) forget() {
	if p.awaited != nil {
		p.awaited.Stop()
		p.awaited = nil
	}
}

// start starts the lease and waits for the slot. A permit that is too late then is returned.
func (p *Permit) start(ctx context.Context, text string) error {
	ticket, err := readTicket(text)
	if err != nil {
		return err
	}
	lease, err := p.permits.leases.begin(ctx, context.WithoutCancel(ctx), ticket)
	if err != nil {
		return err
	}
	if err := lease.job.unsettled; err != nil {
		p.lease = lease
		p.drop()
		return fmt.Errorf("the settings of flow %q of bucket %q cannot be read, so nothing is sent: %w", lease.job.Flow, lease.job.Bucket, err)
	}
	if time.Until(lease.job.slot) > maxHorizon+stepSlack { // the clock of Redis stepped back, and no slot lies so far ahead
		lease.Settle(shaper.Returned("clock_step"))
		return ErrNotStarted
	}
	lease.job.arrived = time.Now()
	isThere := sleep(ctx, time.Until(lease.job.slot))
	lease.job.woken = time.Now()
	late := lease.job.lateness()
	switch {
	case !isThere:
		p.lease = lease
		p.drop()
		return fmt.Errorf("job %q of bucket %q: %w", lease.job.ID, lease.job.Bucket, context.Cause(ctx))
	case late != "":
		lease.Settle(shaper.Returned(late))
		return ErrNotStarted
	}
	p.lease = lease
	p.span.begin(p)
	return nil
}

// giveUp cancels a job that no caller here wants any more. If it is in flight already, its ticket is under way.
func (p *Permit) giveUp(ctx context.Context) {
	awaited := p.awaited
	p.awaited = nil
	if awaited == nil {
		return
	}
	p.permits.ends.Go(func() {
		defer awaited.Stop()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
		defer cancel()
		for {
			state, err := p.permits.client.Cancel(within, p.receipt.Bucket, p.receipt.ID)
			if err != nil || state != shaper.StateInFlight {
				return // if Redis is down, its ticket will not be started
			}
			text, err := awaited.Ticket(within)
			if err != nil {
				return
			}
			ticket, err := readTicket(text)
			if err != nil {
				return
			}
			if lease, err := p.permits.leases.begin(within, within, ticket); err == nil {
				lease.Settle(notWanted())
				return
			}
		}
	})
}

// drop ends the job of an unused permit.
func (p *Permit) drop() {
	lease, awaited := p.lease, p.awaited
	p.lease, p.awaited = nil, nil
	p.span.end(notWanted())
	p.permits.ends.Go(func() {
		lease.Settle(notWanted())
		awaited.Stop()
	})
}

func notWanted() shaper.Outcome {
	outcome := shaper.Dropped("not_wanted", "the caller that waited for the permit has gone")
	outcome.Used = shaper.Units{} // nothing was sent
	return outcome
}

// Receipt returns the receipt of the job.
func (p *Permit) Receipt() shaper.Receipt { return p.receipt }

// Context returns the context for sending: it ends when the lease is lost, and has the values of the context of [Permits.Acquire].
func (p *Permit) Context() context.Context { return p.lease.Context() }

// Attempt returns the attempt as a worker gets it, with the job's payload, headers and address.
func (p *Permit) Attempt() *shaper.Attempt {
	a := &p.lease.job.Attempt
	a.URL, a.Method, a.Headers, a.Payload = p.job.URL, p.job.Method, p.span.headers(p.job.Headers), p.job.Payload
	return a
}

// Settle ends the lease with the outcome of the attempt, once: see [Lease.Settle]. The actual usage corrects the charges of budgets. After
// [shaper.ResultHeld] and [shaper.ResultReturned] the job waits at the head of its queue: call [Permit.Again] or [Permit.Cancel]. Any other result
// ends the job.
func (p *Permit) Settle(outcome shaper.Outcome) {
	lease := p.lease
	p.lease = nil
	p.span.end(outcome)
	lease.Settle(outcome)
	if outcome.Result != shaper.ResultHeld && outcome.Result != shaper.ResultReturned {
		p.forget()
		p.done()
	}
}

// Cancel ends a job that is not wanted any more: one that waits for another permit, or whose permit is unused. It has no effect on an ended permit.
func (p *Permit) Cancel() {
	defer p.done()
	if p.lease != nil {
		p.drop()
		return
	}
	p.giveUp(p.permits.leases.life)
}
