package dispatcher

import "context"

// helper is a goroutine of a drain that runs while it has something to do: an idle bucket has none of these. Its fields are guarded by
// the drain's mu.
type helper struct {
	within context.Context //nolint:containedctx // it is begun until this ends; nil: never
	do     func(context.Context)
	runs   bool
}

// begin has a helper run, if it does not. The caller holds mu.
func (d *drain) begin(h *helper) {
	if h.runs || h.within == nil || h.within.Err() != nil || d.life.Err() != nil {
		return
	}
	h.runs = true
	d.helping.Go(func() { h.do(h.within) })
}

// ends reports whether a helper ends: its context has ended, or there is nothing to do. While it is asked nothing comes.
func (d *drain) ends(h *helper, idle func() bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.runs = h.within.Err() == nil && !idle()
	return !h.runs
}

// endHelpers waits for the helpers, once life has ended.
func (d *drain) endHelpers() {
	d.mu.Lock()   // whoever holds it may be beginning one
	d.mu.Unlock() //nolint:staticcheck // see above
	d.helping.Wait()
}
