package dispatcher

import (
	"context"
	"sync"
	"time"
)

const (
	schedulesPoll   = 10 * time.Second // between two looks at the schedules of every bucket: see fireSchedules
	schedulesRetry  = time.Second      // after Redis did not respond
	schedulesLook   = 16               // schedules of a bucket in one look
	blockedPause    = 2 * time.Second  // until a refused job is tried again
	unreadablePause = time.Minute      // until a schedule that this program cannot read is tried again
)

// lookAtAllSchedules checks the schedules of all buckets soon.
func (d *Dispatcher) lookAtAllSchedules() {
	d.allSchedules.Store(true)
	d.scheduleWake.put()
}

// fireSchedules fires the schedules of all buckets until ctx ends. It sleeps until the first one is due. Then it runs one script per bucket with a
// fire, and one per fire. It reads the next due times every 10 s, and after a wake-up. These reads share round trips. All times are by the clock of
// Redis; the local clock only measures intervals.
func (d *Dispatcher) fireSchedules(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.scheduleWake:
		}
		all, loops := d.allSchedules.Swap(false), *d.loops.Load()
		var due []*scheduler
		for _, loop := range loops {
			s := loop.schedules
			changed := s.changed.Swap(false)
			s.some = s.some || changed
			if all || changed || !time.Now().Before(s.next) {
				due = append(due, s)
			}
		}
		var looks sync.WaitGroup
		for _, s := range d.withSchedules(ctx, due) {
			looks.Go(func() { s.fireDue(ctx) })
		}
		looks.Wait()
		soonest := time.Now().Add(schedulesPoll)
		for _, loop := range loops {
			if next := loop.schedules.next; next.Before(soonest) {
				soonest = next
			}
		}
		timer.Reset(time.Until(soonest))
	}
}

// withSchedules returns the schedulers whose buckets have schedules. Buckets without any at the last look share a command, as in [Dispatcher.checkBuckets].
func (d *Dispatcher) withSchedules(ctx context.Context, all []*scheduler) []*scheduler {
	none := those(all, func(s *scheduler) bool { return !s.some })
	for _, s := range none {
		s.next = time.Now().Add(schedulesPoll)
	}
	for _, s := range anyThere(ctx, d.store, none, func(s *scheduler) []string { return []string{s.Keys.ScheduleDue()} }) {
		s.some = true // perhaps: this look finds out
	}
	return those(all, func(s *scheduler) bool { return s.some })
}
