package producer

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// Bounds of the memory of refusals.
const (
	maxRefusals = 16_384
	// forgetAfter is how long a refusal is repeated before Redis is asked again. A limit that was raised is noticed within this time.
	forgetAfter = time.Second
)

// refusals remembers which callers the limits refused. Until such a caller may retry, a job of the same cost under the same keys would be refused
// again, so the client does not ask Redis. An admitted job under these keys clears the entry. Only jobs whose id the client generated are refused
// from memory: another id may belong to an existing job, and the reply to that does not depend on limits.
//
// The time is counted by our own monotonic clock from the start of the call, no later than the instant at which Redis decided. The zero value is
// ready: most buckets of a process refuse nothing, and a cache takes half a kilobyte.
type refusals struct {
	first sync.Once
	of    *lru.Cache[string, pastRefusal]
	some  atomic.Bool // there was a refusal: of is set
}

type pastRefusal struct {
	set     *limitSet
	cost    int64
	until   time.Time // until then the same answer holds
	retryAt time.Time // when the caller may retry, at the latest
	receipt shaper.Receipt
}

// remember notes a refusal by limits. The call began at start.
func (r *refusals) remember(set *limitSet, caller string, cost int64, start time.Time, receipt *shaper.Receipt) {
	wait := receipt.Refusal.RetryAfter
	r.first.Do(func() { r.of, _ = lru.New[string, pastRefusal](maxRefusals) }) // fails for sizes below 1 only
	r.of.Add(caller, pastRefusal{
		set: set, cost: cost, receipt: *receipt, retryAt: time.Now().Add(wait), until: start.Add(min(wait, forgetAfter)),
	})
	r.some.Store(true)
}

// forget removes the refusal of a caller: a job was admitted.
func (r *refusals) forget(caller string) {
	if r.some.Load() && r.of.Contains(caller) {
		r.of.Remove(caller)
	}
}

// recall returns the receipt of a job whose refusal is known to hold. The job gets its own position among the refused ones.
func (b *producerBucket) recall(set *limitSet, t *entry, now time.Time) (shaper.Receipt, bool) {
	receipt, ok := b.refusals.recall(set, t.counted, &t.job, now)
	if !ok {
		return receipt, false
	}
	by := slices.DeleteFunc(slices.Clone(receipt.Decisions), func(d admission.Decision) bool { return d.Allowed })
	receipt.Refusal.Spread = 0
	b.spread(t, receipt.Refusal, by)
	receipt.Refusal.Detail = admission.ExceededText(receipt.Refusal.Return(), by...)
	return receipt, true
}

// recall returns the receipt of a job whose refusal is known to hold. Its times are shorter by the time that has passed.
func (r *refusals) recall(set *limitSet, caller string, job *shaper.Job, now time.Time) (shaper.Receipt, bool) {
	if !r.some.Load() {
		return shaper.Receipt{}, false
	}
	past, ok := r.of.Get(caller)
	if !ok || past.set != set || past.cost != max(job.Cost, 1) || !now.Before(past.until) {
		return shaper.Receipt{}, false
	}
	receipt, refusal := past.receipt, *past.receipt.Refusal
	passed := refusal.RetryAfter - past.retryAt.Sub(now)
	refusal.RetryAfter -= passed
	receipt.ID, receipt.Flow, receipt.Group, receipt.Refusal = job.ID, job.Flow, job.Group, &refusal
	receipt.Decisions = slices.Clone(receipt.Decisions)
	for i := range receipt.Decisions {
		receipt.Decisions[i] = receipt.Decisions[i].Later(passed)
		receipt.Decisions[i].Source = admission.FromMemory
	}
	return receipt, true
}
