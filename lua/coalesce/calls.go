package coalesce

import (
	"sync"
	"sync/atomic"
)

// Calls counts the calls that are under way, so that Close can admit no more and wait for the running ones.
type Calls struct {
	underWay atomic.Int64
	closed   atomic.Bool
	end      sync.Once
	idle     chan struct{} // closed once it is closed and nothing is under way
}

// NewCalls returns a count of 0.
func NewCalls() *Calls { return &Calls{idle: make(chan struct{})} }

// Enter reports whether a call may begin. If so, Leave must follow.
func (c *Calls) Enter() bool {
	c.underWay.Add(1) // before the look, so that Close misses no call
	if c.closed.Load() {
		c.Leave()
		return false
	}
	return true
}

// Leave ends a call.
func (c *Calls) Leave() {
	if c.underWay.Add(-1) == 0 && c.closed.Load() {
		c.end.Do(func() { close(c.idle) })
	}
}

// Close lets no call begin any more and returns when none is under way. It may be
// called several times, also at once.
func (c *Calls) Close() {
	c.closed.Store(true)
	if c.underWay.Load() == 0 {
		c.end.Do(func() { close(c.idle) })
	}
	<-c.idle
}
