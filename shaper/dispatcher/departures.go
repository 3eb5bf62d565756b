package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

const (
	// departureSlack is how much earlier or later than planned a job may depart. Within the slack it waits for no timer.
	departureSlack = 6 * time.Millisecond

	// departureMelt divides an interval: after a delay, departures follow each other by that much faster. With 100 the receiver sees 1 % more than
	// the rate meanwhile. A quota's window in Redis is 2 % longer than at the receiver, so the quota holds.
	departureMelt = 100

	// maxSpacings bounds the groups and flows that have a queue.
	maxSpacings = 4096
)

// departureQueues spaces the departures of one bucket in this process.
//
// Slots are even, and a job is handed to its worker at its slot. Most workers then connect before the job departs. If each job departed as soon as
// its connection is ready, connections that become ready together would cause a bunch: after a stall of the process, say. So departures have their
// own queue, in the order in which jobs become ready, like the playout buffer of voice over IP. The distance between two departures is the distance
// of their slots, or an interval of the effective rate, whichever is less, minus 1 %. A job with an open connection departs at its slot, unless
// another job departed late just before.
//
// Groups and flows with their own rate have a queue before the bucket's. The zero value is ready. It is safe for concurrent use.
type departureQueues struct {
	mu       sync.Mutex
	interval time.Duration // between two slots of the bucket at the effective rate; 0: departures do not wait
	bucket   spacing
	parts    map[departurePart]*spacing
}

// departurePart names a group, or a flow.
type departurePart struct {
	group, flow string
	isFlow      bool
}

// spacing is one queue of departures. Its times are on a timeline that stops while the process stalls; shift is how far that timeline is behind. So a
// stall delays all jobs of the queue alike, and bunches none.
type spacing struct {
	slot    time.Time     // of the last job
	at      time.Time     // when the last job departs
	shift   time.Duration // how long the process has stalled in total
	waiting []*departure  // waiting jobs, in order
}

// departure is a waiting job.
type departure struct{ at time.Time }

// setInterval sets the time between two slots of the bucket.
func (d *departureQueues) setInterval(interval time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interval = interval
}

// every returns the time between two slots of the bucket.
func (d *departureQueues) every() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.interval
}

// wait waits until a job may depart. It returns false if the permit becomes void before that, or ctx ends.
func (d *departureQueues) wait(ctx context.Context, settings *shaper.Bucket, job *leased) bool {
	void := job.slot.Add(job.validFor())
	if f := settings.Flow; f != nil && !f.Rate.IsZero() {
		if !d.waitInPart(ctx, departurePart{job.Group, job.Flow, true}, f.Rate.Interval(), job.slot, void) {
			return false
		}
	}
	if g := settings.Group; g != nil && !g.Rate.IsZero() {
		if !d.waitInPart(ctx, departurePart{group: job.Group}, g.Rate.Interval(), job.slot, void) {
			return false
		}
	}
	return d.waitIn(ctx, &d.bucket, d.every(), job.slot, void)
}

// waitInPart waits in the queue of a group or a flow.
func (d *departureQueues) waitInPart(ctx context.Context, part departurePart, interval time.Duration, slot, void time.Time) bool {
	s := d.spacingOf(part)
	if s == nil {
		return true
	}
	defer d.forget(part, s, interval)
	return d.waitIn(ctx, s, interval, slot, void)
}

// spacingOf returns the queue of a part; nil if there are too many queues.
func (d *departureQueues) spacingOf(part departurePart) *spacing {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.parts[part]
	if s != nil {
		return s
	}
	if len(d.parts) >= maxSpacings {
		d.forgetOld(time.Now())
	}
	if len(d.parts) >= maxSpacings {
		return nil
	}
	if d.parts == nil {
		d.parts = map[departurePart]*spacing{}
	}
	s = &spacing{}
	d.parts[part] = s
	return s
}

// forget drops a queue that delays no later job: the slot of the next job is an interval later.
func (d *departureQueues) forget(part departurePart, s *spacing, interval time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.waiting) == 0 && s.at.Add(s.shift).Sub(s.slot) <= departureSlack+interval/departureMelt && d.parts[part] == s {
		delete(d.parts, part)
	}
}

// forgetOld drops the queues whose last job departed longer ago than any valid permit. A queue without a slot is new, and is kept.
func (d *departureQueues) forgetOld(now time.Time) {
	for part, s := range d.parts {
		if len(s.waiting) == 0 && !s.slot.IsZero() && now.Sub(s.at.Add(s.shift)) > shaper.MaxPermitTTL {
			delete(d.parts, part)
		}
	}
}

// waitIn waits in a queue until a job may depart.
func (d *departureQueues) waitIn(ctx context.Context, s *spacing, interval time.Duration, slot, void time.Time) bool {
	d.mu.Lock()
	now := time.Now()
	s.catchUp(now)
	at := s.next(slot, interval, now)
	if at.After(void) {
		d.mu.Unlock()
		return false
	}
	s.slot, s.at = slot, at.Add(-s.shift)
	if at.Sub(now) <= departureSlack {
		d.mu.Unlock()
		return true
	}
	one := &departure{s.at}
	s.waiting = append(s.waiting, one)
	for at.Sub(now) > departureSlack && !at.After(void) && ctx.Err() == nil {
		d.mu.Unlock()
		sleep(ctx, at.Sub(now))
		d.mu.Lock()
		now = time.Now()
		s.catchUp(now)
		at = one.at.Add(s.shift)
	}
	i := slices.Index(s.waiting, one)
	s.waiting = slices.Delete(s.waiting, i, i+1)
	d.mu.Unlock()
	return ctx.Err() == nil && !at.After(void)
}

// next returns when a job that is ready now may depart.
func (s *spacing) next(slot time.Time, interval time.Duration, now time.Time) time.Time {
	if s.slot.IsZero() {
		return now
	}
	apart := interval
	if between := slot.Sub(s.slot); between >= 0 && between < interval { // of a burst, or after a change of the rate
		apart = between
	}
	at := s.at.Add(s.shift + apart - apart/departureMelt)
	if at.Before(now) {
		return now
	}
	return at
}

// catchUp shifts the timeline if the first waiting job should have departed already: the process stalled.
func (s *spacing) catchUp(now time.Time) {
	if len(s.waiting) == 0 {
		return
	}
	if late := now.Sub(s.waiting[0].at.Add(s.shift)); late > departureSlack {
		s.shift += late
	}
}
