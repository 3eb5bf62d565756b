package producer

import (
	"math"
	"time"
)

// roundUp makes whole seconds, 1 or more, for people and for Retry-After.
func roundUp(d time.Duration) time.Duration {
	return time.Duration(max(math.Ceil(d.Seconds()), 1)) * time.Second
}
