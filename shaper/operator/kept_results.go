package operator

import "time"

// KeptResults counts the results that a bucket keeps, with their bounds. If results or bytes run short, the flow with the most of them drops its
// oldest ones. All fields are zero for a bucket without a retention.
type KeptResults struct {
	Kept      int64         `lua:"results"`
	Bytes     int64         `lua:"result_bytes"`
	Oldest    time.Time     `lua:"oldest_result"`   // when the oldest one was kept, by the clock of Redis; zero: there is none
	Dropped   int64         `lua:"results_dropped"` // by the bounds, ever
	Max       int64         `lua:"results_max"`
	MaxBytes  int64         `lua:"results_max_bytes"`
	Retention time.Duration `lua:"result_retention"`
}

// IsShort reports whether the bounds let results end before their retention: one is full, and the oldest result is younger.
func (k KeptResults) IsShort(now time.Time) bool {
	return k.Retention > 0 && k.Dropped > 0 && k.Kept > 0 && now.Sub(k.Oldest) < k.Retention-k.Retention/10 && (k.Kept*10 >= k.Max*9 || k.Bytes*10 >= k.MaxBytes*9)
}
