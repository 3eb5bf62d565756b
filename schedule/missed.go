package schedule

import "time"

// CatchUp says which of the fires that were missed are made up for, as when no dispatcher ran.
type CatchUp string

// What CatchUp may be.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last" // the latest one
	CatchUpAll  CatchUp = "all"  // the latest MaxCatchUp
)

// Overlap says what happens to a fire while the job of the one before is unfinished.
type Overlap string

// What Overlap may be.
const (
	OverlapQueue Overlap = "queue" // its job is enqueued too
	OverlapSkip  Overlap = "skip"  // it is skipped
)

const (
	// MaxCatchUp is how many missed fires CatchUpAll makes up for.
	MaxCatchUp = 100

	// Grace is how late a fire may be, and is no missed one.
	Grace = time.Minute
)

// mostCounted is how far missed fires are counted: a line with * in its seconds misses 86,400 a day.
const mostCounted = 1000

// Due is what is to happen to the fires of a schedule that have come.
type Due struct {
	Fire   time.Time // the first one that is to be enqueued; zero if none is
	Next   time.Time // the one after it, or the next one that is to come; zero if there is none
	Missed int       // fires before Fire that are given up: at most 1000 are counted
	First  time.Time // of those that are given up
}

// Due decides which of the fires from due on, which is one, up to now are to be enqueued. A fire that is no later than [Grace] is; of
// those that are later, which are missed, catch tells. CatchUpLast makes up for none where a later fire is in time.
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

// keep is the first fire that is not given up, of those from due on, which is missed; zero if all are.
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

// latest is the first of the latest n fires from due on up to now; due if there are not more.
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
