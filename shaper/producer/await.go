package producer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Result is how a job ended, and what was answered to it.
type Result = shaper.JobResult

// RefusedError says that a job was refused.
type RefusedError struct{ Receipt shaper.Receipt }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("job %q was refused (%s): %s", e.Receipt.ID, e.Receipt.Refusal.Reason, e.Receipt.Refusal.Detail)
}

// Do enqueues a job and waits until it has ended: done or dead. The result has what the downstream answered.
//
// A job that is refused is a [*RefusedError]. When ctx ends the job stays where it is, and the error says so; [Client.Cancel] takes one
// back that has not left. In each case the result has the job's id. Do takes the round trips of an Enqueue and one more, and one a second
// while it waits.
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

// Await enqueues a job, as [Client.Enqueue] does, and returns what waits for its result. Its errors are those of Enqueue. The caller
// calls [Awaited.Stop], also after a refusal.
func (c *Client) Await(ctx context.Context, job shaper.Job) (shaper.Receipt, *Awaited, error) {
	awaited := &Awaited{answers: c.answers, there: make(chan struct{}, 1)}
	receipts, err := c.letIn(ctx, awaited, []shaper.Job{job})
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

// Result returns how a job ended. It is there if the bucket keeps results ([shaper.ResultSettings]), for as long as it does, and for half
// a minute where somebody waited for it. Before the end it is [shaper.ErrNotEnded], later [shaper.ErrNoResult], and [shaper.ErrNotFound] if the
// bucket remembers no such job. One round trip.
func (c *Client) Result(ctx context.Context, bucket, id string) (Result, error) {
	return c.store.Result(ctx, bucket, id)
}

// Awaited is a job whose result somebody waits for.
type Awaited struct {
	answers    *answers
	bucket, id string
	there      chan struct{} // its result may be there
	mayBeThere bool          // from the start, as the job was there before
}

// pollEvery is how long a result may be there without this process having heard of it: the message was lost, or the job ended in a way
// of which there is none (it was cancelled, say), or another process waits for the same job too.
const pollEvery = time.Second

// Result waits for the job to end. Its errors are [shaper.ErrNoResult], where the result has the state in which the job is, and, when ctx ends
// first, that of ctx. While Redis is away it waits on.
func (a *Awaited) Result(ctx context.Context) (Result, error) {
	poll := time.NewTimer(pollEvery/2 + rand.N(pollEvery/2)) //nolint:gosec // spread
	defer poll.Stop()
	for look := a.mayBeThere; ; look = true {
		if look {
			result, err := a.answers.store.Result(ctx, a.bucket, a.id)
			switch {
			case err == nil:
				return result, nil
			case ctx.Err() != nil: // see below
			case errors.Is(err, shaper.ErrNotEnded), redisconn.Unavailable(err):
			case errors.Is(err, shaper.ErrNotFound): // it ended, and its id is forgotten
				return result, shaper.ErrNoResult
			default:
				return result, err
			}
		}
		select {
		case <-ctx.Done():
			return Result{ID: a.id, Bucket: a.bucket}, fmt.Errorf("job %q has not ended, and goes on: %w", a.id, context.Cause(ctx))
		case <-a.there:
		case <-poll.C:
			poll.Reset(pollEvery)
		}
	}
}

// Stop ends the wait. The job goes on.
func (a *Awaited) Stop() { a.answers.forget(a) }

// answers hears of results for all that wait in this process: a script that ends a job that they wait for sends a message to the channel
// of the process.
type answers struct {
	store   *store.Store
	channel string

	mu      sync.Mutex
	waiting map[string][]*Awaited // by "bucket id", as the messages name them
	end     context.CancelFunc    // nil before the first wait
	closed  bool
	heard   sync.WaitGroup
}

func newAnswers(s *store.Store) *answers {
	return &answers{
		store: s, waiting: map[string][]*Awaited{},
		channel: "tundish:answers:" + store.ShortID(rand.Uint64()), //nolint:gosec // a name, not a secret
	}
}

func (l *answers) await(a *Awaited, bucket, id string) {
	a.bucket, a.id = bucket, id
	name := bucket + " " + id
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[name] = append(l.waiting[name], a)
	if l.end == nil && !l.closed {
		ctx, cancel := context.WithCancel(context.Background())
		l.end = cancel
		l.heard.Go(func() { l.listen(ctx) })
	}
}

func (l *answers) forget(a *Awaited) {
	name := a.bucket + " " + a.id
	l.mu.Lock()
	defer l.mu.Unlock()
	others := l.waiting[name][:0]
	for _, one := range l.waiting[name] {
		if one != a {
			others = append(others, one)
		}
	}
	if len(others) == 0 {
		delete(l.waiting, name)
	} else {
		l.waiting[name] = others
	}
}

// listen wakes those that wait. What it misses while the connection is down, they find.
func (l *answers) listen(ctx context.Context) {
	sub := l.store.Redis.Subscribe(ctx, l.channel)
	defer sub.Close()
	messages := sub.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			if m, isMessage := message.(*redis.Message); isMessage {
				l.wake(m.Payload)
			} else {
				l.wakeAll() // (re)subscribed: something may have been missed
			}
		}
	}
}

func (l *answers) wake(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.waiting[name] {
		a.nudge()
	}
}

func (l *answers) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, some := range l.waiting {
		for _, a := range some {
			a.nudge()
		}
	}
}

func (a *Awaited) nudge() {
	select {
	case a.there <- struct{}{}:
	default:
	}
}

func (l *answers) close() {
	l.mu.Lock()
	l.closed = true
	end := l.end
	l.mu.Unlock()
	if end != nil {
		end()
	}
	l.heard.Wait()
	l.wakeAll() // to find that the client is closed
}

// Waiting lists what is waited for now, as "bucket id", in no order.
func (c *Client) Waiting() []string {
	c.answers.mu.Lock()
	defer c.answers.mu.Unlock()
	return slices.Collect(maps.Keys(c.answers.waiting))
}
