// Package batch lets concurrent callers of a script share round trips, without
// delay for who is alone.
package batch

import "sync"

// A second send beside the one under way keeps Redis busy while this process encodes
// and decodes. It starts once eagerness 64ths of the crowd wait. Where it is over it goes
// on with fewer: those who would make the batch full have just been told, and Redis would
// wait for them. (With 64 callers that is a tenth more than with one number for both.)
const (
	eagerness   = 24
	persistence = 15
	whole       = 64
)

// Queue lets concurrent calls share a round trip. An item is sent at once
// when nothing is under way; what comes meanwhile goes together in the next
// send. So there is no added delay when idle and full batches under load.
// Under load two sends may be under way. Items of one owner are never in both,
// so that they keep their order.
//
// Set Send, Max, MaxWeight and Weigh before use. No goroutine runs while there
// is nothing to send.
type Queue[T any] struct {
	// Send deals with items and blocks until the next ones may go. What it
	// returns, if not nil, runs beside that: telling callers costs as much as
	// a round trip.
	Send      func(items []T) (after func())
	Max       int // items in a send
	MaxWeight int // sum of weights in a send; one item may be heavier alone
	Weigh     func(T) int
	Owner     func(T) any // whose items keep their order; nil: one send at a time

	// Kind, if not nil, tells what an item touches, of which a send has MaxKinds at most.
	Kind     func(T) [2]string
	MaxKinds int

	mu      sync.Mutex
	pending []T
	running int
	crowd   Crowd // of items that wait, or are being sent
	split   any   // the owner whose items a send under way has some of, and pending the rest
	wg      sync.WaitGroup
}

// Add hands over items and returns at once.
func (c *Queue[T]) Add(items ...T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, items...)
	c.crowd.Come(len(items))
	if c.running == 0 || c.running == 1 && c.Owner != nil && c.split == nil && c.crowd.IsPart(len(c.pending), eagerness, whole) {
		c.running++
		c.wg.Go(c.run)
	}
}

// Drain takes what has not been sent yet, so that the caller can refuse it.
func (c *Queue[T]) Drain() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.pending
	c.crowd.Go(len(rest))
	c.pending, c.split = nil, nil
	return rest
}

// Wait returns when nothing is under way. Nobody may add meanwhile.
func (c *Queue[T]) Wait() { c.wg.Wait() }

func (c *Queue[T]) run() {
	var mine any // the owner that this run's last send split
	var after func()
	sent := 0
	for {
		batch, split := c.next(mine, sent)
		switch {
		case batch == nil && after != nil:
			after() // here, as there is nothing to do beside it
			return
		case batch == nil:
			return
		case after != nil:
			c.wg.Go(after)
		}
		mine, sent = split, len(batch)
		after = c.Send(batch)
	}
}

// next takes the next batch, after one of so many items, or ends the run. A run whose
// last send split an owner's items is the only one that may go on with them.
func (c *Queue[T]) next(mine any, sent int) (batch []T, split any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent > 0 {
		c.crowd.Answered(sent)
	}
	if mine != nil && c.split == mine {
		c.split = nil
	}
	// Beside another send a small batch would cost more than it hurries.
	if len(c.pending) == 0 || c.split != nil || c.running > 1 && !c.crowd.IsPart(len(c.pending), persistence, whole) {
		c.running--
		return nil, nil
	}
	n, weight := 0, 0
	var kinds kindSet
	for n < len(c.pending) && n < c.Max {
		weight += c.Weigh(c.pending[n])
		if n > 0 && weight > c.MaxWeight {
			break
		}
		if c.Kind != nil && kinds.with(c.Kind(c.pending[n])) > c.MaxKinds {
			break
		}
		n++
	}
	batch = c.pending[:n:n]
	c.pending = c.pending[n:]
	if len(c.pending) == 0 {
		c.pending = nil
	} else if c.Owner != nil && c.Owner(batch[n-1]) == c.Owner(c.pending[0]) {
		c.split = c.Owner(batch[n-1])
	}
	return batch, c.split
}

// kindSet counts kinds. Of one, the usual case, it needs no memory.
type kindSet struct {
	first [2]string
	all   map[[2]string]struct{} // once there are two
	some  bool
}

// with adds a kind and returns how many there are.
func (s *kindSet) with(kind [2]string) int {
	if !s.some {
		s.first, s.some = kind, true
	}
	if s.all == nil {
		if kind == s.first {
			return 1
		}
		s.all = map[[2]string]struct{}{s.first: {}}
	}
	s.all[kind] = struct{}{}
	return len(s.all)
}
