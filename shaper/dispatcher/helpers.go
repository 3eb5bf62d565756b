package dispatcher

import "context"

// helper is a goroutine of a loop that runs while it has something to do. A loop that is idle has no goroutine but its loop. The loop's
// mu guards the fields.
type helper struct {
	within context.Context //nolint:containedctx // the helper is begun until this ends; nil: never
	do     func(context.Context)
	runs   bool
}

// begin starts a helper, unless it runs. The caller holds mu.
func (d *bucketLoop) begin(h *helper) {
	if h.runs || h.within == nil || h.within.Err() != nil || d.life.Err() != nil {
		return
	}
	h.runs = true
	d.helping.Go(func() { h.do(h.within) })
}

// ends reports whether a helper is to end: its context has ended, or there is nothing to do. mu is held while idle is asked, so that no work
// comes in between: work that comes afterwards begins the helper again.
func (d *bucketLoop) ends(h *helper, idle func() bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.runs = h.within.Err() == nil && !idle()
	return !h.runs
}

// endHelpers waits for the helpers, once life has ended.
func (d *bucketLoop) endHelpers() {
	d.mu.Lock()   // a caller of begin that has not seen the end of life yet holds it
	d.mu.Unlock() //nolint:staticcheck // see above
	d.helping.Wait()
}
