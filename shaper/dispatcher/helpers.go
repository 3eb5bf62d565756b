package dispatcher

import (
	"context"
	"sync"
)

// token wakes a goroutine. Several wake-ups become one.
type token chan struct{}

func newToken() token { return make(token, 1) }

func (t token) put() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// helper is a goroutine that runs only while it has work. An idle bucket has no goroutine but its claim loop.
type helper struct {
	within context.Context //nolint:containedctx // the helper is begun until this ends; nil: never
	do     func(context.Context)

	mu      sync.Mutex
	runs    bool
	running sync.WaitGroup
}

// begin starts a helper, unless it runs. The caller adds the work first: see ends.
func (h *helper) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs || h.within == nil || h.within.Err() != nil {
		return
	}
	h.runs = true
	h.running.Go(func() { h.do(h.within) })
}

// ends reports whether the helper is to end: its context has ended, or it has no work. It calls idle with mu held, so the helper sees all work added
// before, and work added afterwards starts it again.
func (h *helper) ends(idle func() bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs = h.within.Err() == nil && !idle()
	return !h.runs
}

// wait returns when the helper has ended. Call it after the end of the helper's context.
func (h *helper) wait() {
	h.mu.Lock()   // a concurrent begin that has not seen the end of the context holds it
	h.mu.Unlock() //nolint:staticcheck // see above
	h.running.Wait()
}
