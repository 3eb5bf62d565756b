package shaper

import "time"

// IsVoid reports whether the permit of the attempt is void. After the departure, a worker calls it before it resends a request that the downstream
// did not process.
func (a *Attempt) IsVoid() bool { return time.Since(a.slot) > a.ttl }
