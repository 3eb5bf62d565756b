package operator

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// DeadReason is a reason for which jobs died, and how many died of it.
type DeadReason struct {
	Cause   string    `json:"cause"`            // one of the Cause constants of package shaper
	Reason  string    `json:"reason,omitempty"` // of the last response
	Status  int       `json:"status,omitempty"` // of HTTP, of the last response
	Letters int       `json:"letters"`
	Oldest  time.Time `json:"oldest"` // when the first and the last of them died
	Newest  time.Time `json:"newest"`
}

// DeadReasons are the reasons of some dead letters, most frequent first.
type DeadReasons struct {
	Reasons []DeadReason
	Looked  int    // dead letters that were examined
	Next    string // the cursor to go on from; "" if there are no more
}

// Reasons sums up why jobs died: the dead letters that match the filter, newest first, from the cursor of an earlier call on, "" at first. Like
// [DeadLetters.Find] it examines at most 2000, or 16 MiB of what Redis keeps of them. It takes two round trips for each 200.
func (d DeadLetters) Reasons(ctx context.Context, filter DeadFilter, cursor string) (DeadReasons, error) {
	sum := DeadReasons{Next: cursor}
	walk, err := d.walk(ctx, filter, false)
	if err != nil {
		return sum, err
	}
	if cursor != "" && !walk.goOn(cursor) {
		return sum, badCursor(d.bucket)
	}
	walk.reader.bare = true
	type key struct {
		cause, reason string
		status        int
	}
	reasons := map[key]*DeadReason{}
	for walk.goesOn(sum.Looked) {
		some, err := walk.next(ctx, min(deadChunk, maxDeadLooked-sum.Looked))
		if err != nil {
			return sum, err
		}
		sum.Looked += len(some)
		for i := range some {
			info := &some[i].JobInfo
			if !filter.matches(info) {
				continue
			}
			k := key{info.Last.Cause, info.Last.Reason, info.Last.Status}
			one := reasons[k]
			if one == nil {
				one = &DeadReason{Cause: k.cause, Reason: k.reason, Status: k.status, Newest: info.Died}
				reasons[k] = one
			}
			one.Letters++
			one.Oldest = info.Died
		}
	}
	for _, one := range reasons {
		sum.Reasons = append(sum.Reasons, *one)
	}
	slices.SortFunc(sum.Reasons, func(a, b DeadReason) int {
		return cmp.Or(b.Letters-a.Letters, cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Reason, b.Reason), a.Status-b.Status)
	})
	if sum.Next = walk.position(); walk.ended {
		sum.Next = ""
	}
	return sum, nil
}
