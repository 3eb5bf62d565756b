package dispatcher

import (
	"context"
	"sync/atomic"
	"time"
)

// maxSkew is the largest difference between the clocks of this machine and Redis that is not reported. Pace and signature timestamps use the clock of
// Redis, but receivers use their own clocks, and logs this machine's.
const maxSkew = 5 * time.Second

// clockSkew is the difference of the two clocks, and whether it was logged.
type clockSkew struct {
	last   atomic.Int64 // a time.Duration
	logged bool         // used by the patrol only
}

// checkSkew compares the clocks, and logs when they start and stop to differ. It cannot know which of the two is wrong.
func (d *Dispatcher) checkSkew(ctx context.Context, now time.Time) {
	var skew time.Duration
	for _, l := range *d.loops.Load() { // in a cluster, the clocks of several Redis nodes
		if s := l.clock.skew(now); s.Abs() > skew.Abs() {
			skew = s
		}
	}
	d.skew.last.Store(int64(skew))
	d.store.Metrics.SetClockSkew(skew)
	switch differs := skew.Abs() > maxSkew; {
	case differs && !d.skew.logged:
		d.store.Log.WarnContext(ctx, "the clocks of Redis and of this machine differ: deliveries are paced and signed by the clock of Redis; run NTP on both machines, "+
			"as receivers refuse signatures whose time is wrong", "redis_ahead_by", skew.Round(time.Millisecond))
	case !differs && d.skew.logged:
		d.store.Log.InfoContext(ctx, "the clocks of Redis and of this machine agree again", "redis_ahead_by", skew.Round(time.Millisecond))
	}
	d.skew.logged = skew.Abs() > maxSkew
}
