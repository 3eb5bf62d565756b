package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Awaited is a job whose result a caller waits for.
type Awaited struct {
	answers    *answers
	bucket, id string
	name       string        // of both, as the messages name them
	there      chan struct{} // its result may be there
	tickets    chan string   // the newest ticket, of a job that this process sends itself; else nil
	mayBeThere bool          // set from the start if the job may have ended already
	polled     atomic.Bool   // the result was requested
	sent       trace.SpanContext
}

// pollEvery is how long a result may be in Redis without a message to this process. The message was lost, or the job ended in a way without a message
// (cancelled, for example), or another process waits for the same job too.
const pollEvery = time.Second

// Result waits for the job to end. Its errors are [shaper.ErrNoResult], with the job's state in the result, and the error of ctx if that ends first.
// While Redis is unavailable it keeps waiting.
func (a *Awaited) Result(ctx context.Context) (Result, error) {
	a.polled.Store(true)
	for look := a.mayBeThere; ; look = true {
		if look {
			result, err := a.answers.store.AwaitedResult(ctx, a.bucket, a.id)
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
		}
	}
}

// Stop ends the wait. The job goes on. It reports whether no other caller in this process waits for the job; only the first call does.
func (a *Awaited) Stop() (last bool) { return a.answers.forget(a) }

// Resume waits again after a Stop, also for a job that has ended in between.
func (a *Awaited) Resume() {
	a.mayBeThere = true
	a.answers.await(a, a.bucket, a.id)
}

// answers receives results for all waiters of this process. The script that ends a job with a waiter sends a message to the channel of the
// process.
type answers struct {
	store   *store.Store
	channel string

	mu      sync.Mutex
	waiting map[string][]*Awaited // by "bucket id", as the messages name them: a bucket by its first name
	end     context.CancelFunc    // nil before the first wait
	closed  bool
	running sync.WaitGroup
}

func newAnswers(s *store.Store) *answers {
	return &answers{
		store: s, waiting: map[string][]*Awaited{},
		channel: "tundish:answers:" + store.ShortID(rand.Uint64()), //nolint:gosec // a name, not a secret
	}
}

func (l *answers) await(a *Awaited, bucket, id string) {
	name := l.store.KeyName(bucket) + " " + id
	a.bucket, a.id, a.name = bucket, id, name
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[name] = append(l.waiting[name], a)
	if l.end == nil && !l.closed {
		ctx, cancel := context.WithCancel(context.Background())
		l.end = cancel
		l.running.Go(func() { l.listen(ctx) })
		l.running.Go(func() { l.poll(ctx) })
	}
}

func (l *answers) forget(a *Awaited) (last bool) {
	name := a.name
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.waiting[name])
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
	return before > 0 && len(others) == 0
}

// poll reads about once a second which of the awaited jobs may have ended, and wakes their waiters. It takes one script for 500 jobs of a bucket,
// however many waiters there are.
func (l *answers) poll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(pollEvery*3/4 + rand.N(pollEvery/4)) //nolint:gosec // spread
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		l.store.Ended(ctx, l.polled(), func(bucket, id string) { l.wake(l.store.KeyName(bucket) + " " + id) })
	}
}

// polled returns the ids of the awaited jobs, by bucket.
func (l *answers) polled() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	jobs := map[string][]string{}
	for _, some := range l.waiting {
		if slices.ContainsFunc(some, func(a *Awaited) bool { return a.polled.Load() }) {
			jobs[some[0].bucket] = append(jobs[some[0].bucket], some[0].id)
		}
	}
	return jobs
}

// listen wakes the waiters. Messages that it misses while the connection is down, poll makes up for.
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
				l.deliver(codec.ReadMessage(m.Payload))
			} else {
				l.wakeAll() // (re)subscribed: something may have been missed
			}
		}
	}
}

// deliver passes on a message. For a job that this process sends, the newest ticket counts.
func (l *answers) deliver(name, ticket string) {
	if ticket == "" {
		l.wake(name)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.waiting[name] {
		if a.tickets == nil {
			continue
		}
		select {
		case <-a.tickets:
		default:
		}
		a.tickets <- ticket
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
	l.running.Wait()
}
