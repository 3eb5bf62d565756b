package admission

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/coalesce"
	"github.com/tundish-io/tundish/redisconn"
)

// maxBatch is how many questions go in one script.
const maxBatch = 256

// gate is a limit as this process asks it: its configuration, and the queue by which concurrent questions share round trips (package coalesce).
type gate struct {
	limiter  *Limiter
	name     string
	conf     string                 // key
	source   atomic.Pointer[source] // of a configured limit
	compiled atomic.Pointer[[]*compiledLimit]
	queue    coalesce.Queue[*question]
}

func newGate(l *Limiter, limit string) *gate {
	g := &gate{limiter: l, name: limit, conf: confKey(limit)}
	g.queue = coalesce.Queue[*question]{
		Max: maxBatch, Send: g.send,
		Owner: func(q *question) any { return q },
		// Questions of another kind, or of another namer, go in another batch.
		MaxKinds: 1, Kind: func(q *question) [2]string { return [2]string{q.kind, q.namer} },
	}
	return g
}

func confKey(limit string) string { return "tundish:{l:" + limit + "}:conf" }

// question is a question to a limit, and its answer.
type question struct {
	*compiledLimit
	ctx    context.Context //nolint:containedctx // of the caller, for its values
	key    string
	namer  string // digits of the client that names the key, "" without one: all questions of a batch have the same
	cost   int64
	start  time.Time
	report int64 // was admitted without Redis, and is to be taken first
	extra  int64 // to take in advance, if the question is allowed
	taken  int64 // of extra

	verdict, remaining, wait, reset int64
	shared                          bool // the key that callers above MaxKeys share counted it
	err                             error
	answered                        chan struct{}
}

func newQuestion(ctx context.Context, f *compiledLimit, key string, cost int64, start time.Time) *question {
	return &question{compiledLimit: f, ctx: ctx, key: key, namer: namerOf(ctx), cost: cost, start: start, answered: make(chan struct{})}
}

// ask gets the question answered. It returns when that is done, when its context ends, or at the limiter's timeout; and at once while the breaker is
// open.
func (g *gate) ask(q *question) error {
	if err := q.ctx.Err(); err != nil {
		return err
	}
	deadline, ok := q.ctx.Deadline()
	switch {
	case g.limiter.breaker.Shaky():
		// In a batch it would wait as long as the probe.
		g.limiter.background.Go(func() { g.send([]*question{q})() })
	case ok && deadline.Before(q.start.Add(g.limiter.timeout)):
		g.queue.Add(q)
	default:
		g.queue.AddAndSend(q)
	}
	select {
	case <-q.answered:
		return q.err
	case <-q.ctx.Done():
	}
	if g.queue.Remove(q) {
		return context.Cause(q.ctx)
	}
	g.limiter.background.Go(func() { <-q.answered }) // a Close waits for it
	return fmt.Errorf("the outcome is unknown: %w", context.Cause(q.ctx))
}

// send gets the answers of a batch, and returns the function that delivers them to the callers. It outlives the callers: a caller that gives up
// does not undo the call under way.
func (g *gate) send(batch []*question) (deliver func()) {
	first := batch[0]
	ctx, cancel := context.WithDeadline(context.WithoutCancel(first.ctx), first.start.Add(g.limiter.timeout))
	defer cancel()
	c := g.newAllowCall(batch)
	err := c.exchange(ctx)
	switch n := len(batch); {
	case n > 1 && lua.IsTooLarge(err):
		first, second := g.send(batch[:n/2:n/2]), g.send(batch[n/2:])
		return func() { first(); second() }
	case isolated(err) && len(c.keys) > 1:
		g.askApart(ctx, batch)
		return func() { deliverAll(batch) }
	case redisconn.Unavailable(err):
		// The later questions of the queue would wait as long again.
		batch = append(batch, g.queue.Drain()...)
	}
	return func() {
		c.decode(err)
		for _, q := range batch[len(c.batch):] {
			q.err = err
		}
		deliverAll(batch)
	}
}

func deliverAll(batch []*question) {
	for _, q := range batch {
		close(q.answered)
	}
}

// askApart asks about each key by itself, because one of them spoils a batch: Redis has a value there that is no state of a limit. Nothing was spent
// yet.
func (g *gate) askApart(ctx context.Context, batch []*question) {
	byKey := map[string][]*question{}
	for _, q := range batch {
		byKey[q.key] = append(byKey[q.key], q)
	}
	for _, questions := range byKey {
		c := g.newAllowCall(questions)
		c.decode(c.exchange(ctx))
	}
}
