package producer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// entry is one job on its way through the queue.
type entry struct {
	job       shaper.Job
	bucket    *producerBucket // of its bucket
	generated bool
	sealed    codec.Sealed
	call      *call
	receipt   *shaper.Receipt
	turn      int64 // of its caller, among all that wait
	answered  int64 // how many calls of its bucket Redis had answered when the job was queued

	limits  []limitArgs // of the bucket, when the job was sent
	counted string      // the keys by which these count it: see keyring
}

// call is one call of Enqueue: done is called when all its entries are answered. One job, the usual case, needs no further memory. Calls are reused:
// new ones would be most of the memory of an enqueue.
type call struct {
	entries  []entry
	queued   []*entry
	receipts []shaper.Receipt // the caller's once they are answered
	one      struct {
		entry  [1]entry
		queued [1]*entry
	}

	mu     sync.Mutex
	spread map[string]time.Duration // how much later its refused jobs should return: see producerBucket.spread

	mixed bool // the jobs differ in their costs: a cheap one may be admitted while a dear one is refused

	client *Client
	ctx    context.Context //nolint:containedctx // for its values: the batch outlives the call
	left   atomic.Int64
	err    atomic.Pointer[error]
	done   chan struct{}
}

// newCall reuses a call that was answered, or makes one.
func (c *Client) newCall(ctx context.Context, jobs int) *call {
	shared, ok := c.calls.Get().(*call)
	if !ok {
		shared = &call{client: c, done: make(chan struct{}, 1)}
	}
	shared.ctx, shared.receipts, shared.mixed = ctx, make([]shaper.Receipt, jobs), false
	shared.left.Store(int64(jobs))
	if jobs == 1 {
		shared.entries, shared.queued = shared.one.entry[:], shared.one.queued[:]
	} else {
		shared.entries, shared.queued = make([]entry, jobs), make([]*entry, jobs)
	}
	return shared
}

// keptSeal is the room for a sealed job that a call may keep for the next one.
const keptSeal = 4096

// release lets others use the call. All its entries must have been answered, or none was queued.
func (c *Client) release(shared *call) {
	packed := shared.one.entry[0].sealed[:0]
	if cap(packed) > keptSeal {
		packed = nil
	}
	shared.one.entry[0], shared.one.queued[0] = entry{sealed: packed}, nil
	shared.entries, shared.queued, shared.receipts, shared.ctx, shared.spread = nil, nil, nil, nil, nil
	shared.err.Store(nil)
	c.calls.Put(shared)
}

func (t *entry) finish(err error) {
	if err != nil {
		first := err // err itself would be an object each time
		t.call.err.CompareAndSwap(nil, &first)
	}
	if c := t.call; c.left.Add(-1) == 0 {
		c.client.queued.Done()
		c.done <- struct{}{}
	}
}
