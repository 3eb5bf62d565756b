package admission

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/lua/batch"
	"github.com/tundish-io/tundish/redisconn"
)

// maxBatch is how many questions go in one script.
const maxBatch = 256

// maxUnderWay is how many batches may be under way, so that neither Redis nor this
// process waits for the other. One goes beside others if it has its share of the
// callers, a third: of two each asks for himself, and of 64 some 21 together.
// Smaller batches cost more than they hurry, and with larger ones few callers would
// wait for each other's round trips.
const maxUnderWay = 3

// gate is where the questions of one limit come together, so that concurrent
// ones share round trips.
//
// Who comes while nothing is under way sends by himself, in his own goroutine:
// alone, a question costs no more than the command. Who comes meanwhile waits,
// unless those who wait are worth a batch beside those under way: then the last to
// come sends for all of them. When a reply is there, the first of those who wait is
// woken to send for all of them, and only then its answers are told.
type gate struct {
	limiter  *Limiter
	name     string
	conf     string                 // key
	source   atomic.Pointer[source] // of a configured limit
	compiled atomic.Pointer[[]*compiledLimit]

	mu       sync.Mutex
	underWay int // batches
	pending  []*question
	callers  batch.Crowd // who wait for an answer, if only to send
}

func newGate(l *Limiter, limit string) *gate {
	return &gate{limiter: l, name: limit, conf: confKey(limit)}
}

func confKey(limit string) string { return "tundish:{l:" + limit + "}:conf" }

// question is one that is asked of a gate, and its answer.
type question struct {
	*compiledLimit
	key    string
	cost   int64
	start  time.Time
	report int64 // was admitted without Redis, and is to be taken first
	extra  int64 // to take in advance, if the question is allowed
	taken  int64 // of extra

	verdict, remaining, wait, reset int64
	shared                          bool // the key that callers above MaxKeys share was asked
	err                             error

	wake   chan struct{}
	placed place       // under the gate's mu, while it is in a batch or waits for one
	batch  []*question // what this one is to send
}

// place is where a question is.
type place int

const (
	placeNone place = iota
	placePending
	placeLeading
	placeSent
)

// newQuestion takes a question that is not used any more, or makes one.
func (l *Limiter) newQuestion(f *compiledLimit, key string, cost int64, start time.Time) *question {
	q, ok := l.questions.Get().(*question)
	if !ok {
		q = &question{wake: make(chan struct{}, 1)}
	}
	wake, batch := q.wake, q.batch
	*q = question{compiledLimit: f, key: key, cost: cost, start: start, wake: wake, batch: batch[:0]}
	return q
}

// release lets others use the question. It must have been answered.
func (l *Limiter) release(q *question) {
	q.compiledLimit = nil
	l.questions.Put(q)
}

// ask has the question answered. It returns when it is, when ctx ends, or when
// the limiter's timeout is over; and at once while the breaker is open.
func (g *gate) ask(ctx context.Context, q *question) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	g.callers.Come(1)
	if g.underWay == 0 {
		g.underWay++
		g.mu.Unlock()
		q.batch = append(q.batch, q)
		return g.lead(ctx, q)
	}
	if g.limiter.breaker.Shaky() {
		g.callers.Go(1)
		g.mu.Unlock() // who waited would wait as long as the probe
		return redisconn.ErrBreakerOpen
	}
	q.placed = placePending
	g.pending = append(g.pending, q)
	if g.underWay < maxUnderWay && g.worthIt() {
		g.underWay++
		first := g.take()
		if q.placed == placeSent {
			q.batch, first.batch = first.batch, q.batch // to wake the first would take longer
			g.mu.Unlock()
			return g.lead(ctx, q)
		}
		first.wakeToLead()
	}
	g.mu.Unlock()
	return g.await(ctx, q)
}

// await waits for the answer, or for the turn to send.
func (g *gate) await(ctx context.Context, q *question) error {
	select {
	case <-q.wake:
		if len(q.batch) > 0 {
			return g.lead(ctx, q)
		}
		return q.err
	case <-ctx.Done():
		return g.leave(ctx, q)
	}
}

// leave takes back a question whose caller gave up.
func (g *gate) leave(ctx context.Context, q *question) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch q.placed {
	case placePending:
		g.pending = without(g.pending, q)
	case placeLeading:
		<-q.wake
		g.pending = append(without(q.batch, q), g.pending...)
		q.batch = nil
		for _, other := range g.pending {
			other.placed = placePending
		}
		g.next()
	case placeSent:
		return fmt.Errorf("the outcome is unknown: %w", context.Cause(ctx))
	case placeNone: // it has just been answered
		<-q.wake
		return q.err
	}
	q.placed = placeNone
	g.callers.Go(1)
	return context.Cause(ctx)
}

func without(questions []*question, q *question) []*question {
	rest := make([]*question, 0, len(questions))
	for _, other := range questions {
		if other != q {
			rest = append(rest, other)
		}
	}
	return rest
}

// next gives a turn that is over to the first of those who wait, if there is one
// and they are worth it. The caller holds mu.
func (g *gate) next() {
	if len(g.pending) == 0 || g.underWay > 1 && !g.worthIt() {
		g.underWay--
		return
	}
	g.take().wakeToLead()
}

// worthIt reports whether those who wait are worth a batch beside another one.
// The caller holds mu.
func (g *gate) worthIt() bool { return g.callers.IsPart(len(g.pending), 1, maxUnderWay) }

// wakeToLead has the question's caller send its batch. The caller holds mu.
func (q *question) wakeToLead() {
	q.placed = placeLeading
	q.wake <- struct{}{}
}

// take gives the first of those who wait a batch with it and others, and returns
// it. The caller holds mu.
func (g *gate) take() *question {
	// Those of another state of the configuration, or given with another
	// algorithm, go next time.
	leader := g.pending[0]
	n := 1
	for n < len(g.pending) && n < maxBatch && g.pending[n].rev == leader.rev && g.pending[n].Algorithm == leader.Algorithm {
		n++
	}
	leader.batch = append(leader.batch[:0], g.pending[:n]...)
	g.pending = append(g.pending[:0], g.pending[n:]...)
	for _, q := range leader.batch {
		q.placed = placeSent
	}
	return leader
}

// lead sends the batch of q, in this goroutine if its caller can wait for as
// long as that may take.
func (g *gate) lead(ctx context.Context, q *question) error {
	batch := q.batch
	until := batch[0].start.Add(g.limiter.timeout)
	if deadline, ok := ctx.Deadline(); !ok || !deadline.Before(until) {
		g.send(ctx, batch, until, q)
		q.batch = q.batch[:0]
		return q.err
	}
	g.mu.Lock()
	q.placed = placeSent
	q.batch = nil
	g.mu.Unlock()
	g.limiter.beside.Go(func() { g.send(ctx, batch, until, nil) })
	return g.await(ctx, q)
}

// send has a batch answered and wakes all who wait for it but self. It outlives
// the callers: one who gives up does not undo what is on its way.
func (g *gate) send(ctx context.Context, batch []*question, until time.Time, self *question) {
	ctx = g.limiter.within(ctx, until)
	r := g.newRound(batch)
	defer r.release()
	err := r.exchange(ctx)
	apart := isolated(err) && len(r.keys) > 1
	if apart {
		g.askApart(ctx, batch)
	}
	answered := batch
	g.mu.Lock()
	if redisconn.Unavailable(err) {
		// Those who queued behind this batch would wait as long again.
		answered = append(answered[:len(answered):len(answered)], g.pending...)
		g.pending = g.pending[:0]
	}
	g.callers.Answered(len(answered))
	g.next()
	for _, q := range answered {
		q.placed = placeNone
	}
	g.mu.Unlock()
	if !apart {
		r.decode(err)
	}
	for i, q := range answered {
		if i >= len(batch) {
			q.err = err
		}
		if q != self {
			q.wake <- struct{}{}
		}
	}
}

// bounded is a context that ends at a time and is of several round trips.
type bounded struct {
	ctx    context.Context
	cancel context.CancelFunc // called by nobody: it ends by itself, soon
	until  time.Time
}

// within returns a context that does not end with ctx, has its values, and ends
// at a time, or up to a sixteenth of the timeout sooner: those that end at about
// the same time are one, because a timer for each took longer than all else
// that is done for a question here.
func (l *Limiter) within(ctx context.Context, until time.Time) context.Context {
	values := context.WithoutCancel(ctx)
	b := l.bounded.Load()
	if b == nil || b.until.After(until) || until.Sub(b.until) > l.timeout/16 {
		b = &bounded{until: until}
		b.ctx, b.cancel = context.WithDeadline(values, until) //nolint:gosec // others may use it until it ends
		l.bounded.Store(b)
	}
	return within{b.ctx, values}
}

// within is a context with the values of another one.
type within struct {
	context.Context
	values context.Context
}

func (w within) Value(key any) any { return w.values.Value(key) }

// askApart asks about each key by itself, because one of them spoils a batch:
// something is kept there that is no state of a limit. Nothing was spent yet.
func (g *gate) askApart(ctx context.Context, batch []*question) {
	byKey := map[string][]*question{}
	for _, q := range batch {
		byKey[q.key] = append(byKey[q.key], q)
	}
	for _, questions := range byKey {
		r := g.newRound(questions)
		r.decode(r.exchange(ctx))
		r.release()
	}
}
