package schedule

import "time"

// CatchUp says which missed fires are made up for, for example after no dispatcher ran.
type CatchUp string

// The values of CatchUp.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last" // the latest one
	CatchUpAll  CatchUp = "all"  // the latest MaxCatchUp
)

// Overlap says what happens to a fire while the job of the previous fire is unfinished.
type Overlap string

// The values of Overlap.
const (
	OverlapQueue Overlap = "queue" // its job is enqueued too
	OverlapSkip  Overlap = "skip"  // it is skipped
)

const (
	// MaxCatchUp is how many missed fires CatchUpAll makes up for.
	MaxCatchUp = 100

	// Grace is how late a fire may be without counting as missed.
	Grace = time.Minute
)

// mostCounted bounds the count of missed fires: a line with * in its seconds misses 86,400 a day.
const mostCounted = 1000

// Due is the decision about the fires of a schedule that are due.
type Due struct {
	Fire   time.Time // the first one to enqueue; zero if there is none
	Next   time.Time // the one after it, or the next future one; zero if there is none
	Missed int       // fires before Fire that are given up: at most 1000 are counted
	First  time.Time // the first fire that is given up
}

// Due decides which of the fires from due, which is a fire, up to now are enqueued. A fire at most [Grace] late is enqueued. catch decides about
// later, missed ones. CatchUpLast makes up for none if a later fire is in time.
func (r *Rule) Due(due, now time.Time, catch CatchUp) Due {
	if due.After(now) {
		return Due{Next: due}
	}
	fire := due
	if inTime := now.Add(-Grace); due.Before(inTime) {
		fire = r.keep(due, now, catch)
	}
	d := Due{Fire: fire}
	if fire.IsZero() {
		d.Next = r.Next(now)
	} else {
		d.Next = r.Next(fire)
	}
	for at := due; !at.After(now) && !at.IsZero() && (fire.IsZero() || at.Before(fire)) && d.Missed < mostCounted; at = r.Next(at) {
		d.Missed++
	}
	if d.Missed > 0 {
		d.First = due
	}
	return d
}

// keep returns the first of the missed fires from due on that is not given up; zero if all are.
func (r *Rule) keep(due, now time.Time, catch CatchUp) time.Time {
	inTime := now.Add(-Grace)
	if catch == CatchUpAll {
		return r.latest(due, now, MaxCatchUp)
	}
	if next := r.Next(inTime.Add(-time.Nanosecond)); !next.IsZero() && !next.After(now) {
		return next
	}
	if catch == CatchUpLast {
		return r.last(due.Add(-time.Second), inTime)
	}
	return time.Time{}
}

// latest returns the first of the latest n fires from due up to now; due if there are no more than n.
func (r *Rule) latest(due, now time.Time, n int) time.Time {
	at := due
	for range n {
		if at = r.Next(at); at.IsZero() || at.After(now) {
			return due
		}
	}
	first := now
	for range n {
		at = r.last(due.Add(-time.Second), first)
		first = at.Add(-time.Second)
	}
	return at
}
