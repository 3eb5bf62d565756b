package shaper

import "time"

// IsVoid reports whether the permit of the attempt is void. A worker asks it before it sends, after the departure, a request again that the
// downstream did not process.
func (a *Attempt) IsVoid() bool { return time.Since(a.slot) > a.ttl }
