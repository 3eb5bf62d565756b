package dispatcher

import (
	"context"
	"sync"
)

// token wakes a goroutine. One that is there already is enough.
type token chan struct{}

func newToken() token { return make(token, 1) }

func (t token) put() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// helper is a goroutine that runs while it has something to do. A bucket that is idle has no goroutine but its claim loop.
type helper struct {
	within context.Context //nolint:containedctx // the helper is begun until this ends; nil: never
	do     func(context.Context)

	mu      sync.Mutex
	runs    bool
	running sync.WaitGroup
}

// begin starts a helper, unless it runs. The work that it is to do is there already: see ends.
func (h *helper) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs || h.within == nil || h.within.Err() != nil {
		return
	}
	h.runs = true
	h.running.Go(func() { h.do(h.within) })
}

// ends reports whether a helper is to end: its context has ended, or there is nothing to do. mu is held while idle is asked, so that the helper
// sees work that came before, and work that comes afterwards begins the helper again.
func (h *helper) ends(idle func() bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs = h.within.Err() == nil && !idle()
	return !h.runs
}

// wait returns when the helper has ended, once its context has.
func (h *helper) wait() {
	h.mu.Lock()   // a caller of begin that has not seen the end of the context yet holds it
	h.mu.Unlock() //nolint:staticcheck // see above
	h.running.Wait()
}
