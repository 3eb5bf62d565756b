package dispatcher

import (
	"context"
	"sync/atomic"
	"time"
)

// maxSkew is by how much the clock of this machine and that of Redis may differ without a word. The pace and the timestamps of signatures go by
// Redis, but receivers go by clocks of their own, and logs by that of the machine.
const maxSkew = 5 * time.Second

// clockSkew is by how much the two clocks differ, and whether that was logged.
type clockSkew struct {
	last   atomic.Int64 // of type time.Duration
	logged bool         // of the patrol alone
}

// checkSkew compares the clocks, and logs when they begin and cease to differ. Which of the two is wrong it cannot know.
func (d *Dispatcher) checkSkew(ctx context.Context, now time.Time) {
	var skew time.Duration
	for _, l := range *d.loops.Load() { // in a cluster, of more than one Redis
		if s := l.clock.skew(now); s.Abs() > skew.Abs() {
			skew = s
		}
	}
	d.skew.last.Store(int64(skew))
	d.store.Metrics.SetClockSkew(skew)
	switch differs := skew.Abs() > maxSkew; {
	case differs && !d.skew.logged:
		d.store.Log.WarnContext(ctx, "the clocks of Redis and of this machine differ: deliveries are paced and signed by that of Redis; run NTP on both machines, "+
			"as receivers refuse signatures whose time is wrong", "redis_ahead_by", skew.Round(time.Millisecond))
	case !differs && d.skew.logged:
		d.store.Log.InfoContext(ctx, "the clocks of Redis and of this machine agree again", "redis_ahead_by", skew.Round(time.Millisecond))
	}
	d.skew.logged = skew.Abs() > maxSkew
}
