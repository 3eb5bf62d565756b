package dispatcher

// Busy is how many jobs this process has in flight: claimed, and not settled yet. It makes no round trip.
func (d *Dispatcher) Busy() int {
	n := 0
	for _, l := range *d.loops.Load() {
		n += l.held.count()
	}
	return n
}

// count is how many jobs are held.
func (h *leaseHolder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)
}
