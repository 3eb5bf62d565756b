package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// sparePlaces is the divisor of the capacity that a redrive by filter leaves free for producers: 10 %.
const sparePlaces = 10

// firstChunk is how many dead letters a call reads first; then it doubles the number. So a call that finds its bucket full has read little.
const firstChunk = 25

// DeadChange is the result of a change of the dead letters that match a filter.
type DeadChange struct {
	Redriven
	Dropped int // for good
	Matched int // dead letters that match, of the examined ones
	Looked  int // dead letters that were examined, and need no second look unless Waiting

	// Next is the cursor to go on from; "" if no dead letter is left that could be changed. It skips no dead letter that stayed because its bucket,
	// flow or group is full.
	Next string

	// Waiting says that nothing more can be moved for now: go on from Next when jobs have been sent.
	Waiting bool
}

// RedriveFound redrives the dead letters that match the filter, oldest first, from a cursor on, "" at first. It examines at most 2000. It ignores
// dead letters that die after the first call, so jobs that fail again are not redriven again.
//
// It leaves capacity to producers: it fills flows and groups to 90 %, and the bucket to 90 % of what jobs of priority low may fill (see
// [shaper.Shed]). If the bucket is full, it ends, and Next leads to the first dead letter that did not fit. A dead letter whose flow or group is full
// is skipped, and tried again in the next round, to which Next leads. Dead letters of disabled flows stay dead. It may be called again after an
// error, with the same cursor. With dryRun it only counts what it would try. Six round trips for each 200 dead letters that it examines.
func (d DeadLetters) RedriveFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool) (DeadChange, error) {
	change, err := d.changeFound(ctx, filter, cursor, dryRun, func(ctx context.Context, change *DeadChange, ids []string) (leftDead, error) {
		left := leftDead{len(ids), len(ids)}
		codes, err := d.op.redriveSome(ctx, d.bucket, ids, sparePlaces)
		for i, code := range codes {
			switch code {
			case lua.RedriveFull:
				left.full = min(left.full, i)
			case lua.RedriveFlowFull, lua.RedriveGroupFull:
				left.part = min(left.part, i)
			}
			change.count(code)
		}
		return left, err
	})
	d.noteRedriven(ctx, change.Redriven, filter.logged()...)
	return change, err
}

// DropFound drops the dead letters that match the filter, in the order in which RedriveFound redrives them. It examines at most 2000 in a call, and
// none that died after the first call. One round trip more for each that it drops.
func (d DeadLetters) DropFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool) (DeadChange, error) {
	change, err := d.changeFound(ctx, filter, cursor, dryRun, func(ctx context.Context, change *DeadChange, ids []string) (leftDead, error) {
		for _, id := range ids {
			state, err := d.op.cancel(ctx, d.bucket, id, shaper.StateDead)
			switch {
			case errors.Is(err, shaper.ErrNotFound): // another process dropped it, and Redis has forgotten it already
			case err != nil:
				return leftDead{}, err
			case state == shaper.StateDropped:
				change.Dropped++
			}
		}
		return leftDead{len(ids), len(ids)}, nil
	})
	if change.Dropped > 0 {
		d.op.note(ctx, d.bucket, metrics.ActionDrop, append([]any{"jobs", change.Dropped}, filter.logged()...)...)
	}
	return change, err
}

// leftDead has the indexes of the first dead letters that found their bucket full, or their flow or group. An index is the number of dead letters if
// none did.
type leftDead struct{ full, part int }

// changeFound examines the next dead letters and calls do with those that match the filter.
func (d DeadLetters) changeFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool,
	do func(ctx context.Context, change *DeadChange, ids []string) (leftDead, error),
) (DeadChange, error) {
	change := DeadChange{Next: cursor}
	walk, err := d.walk(ctx, filter, true)
	if err != nil {
		return change, err
	}
	round, err := d.round(ctx, walk, cursor)
	if err != nil {
		return change, err
	}
	for chunk := firstChunk; walk.goesOn(change.Looked); chunk = min(2*chunk, deadChunk) {
		from, id := walk.from, walk.id
		some, err := walk.next(ctx, chunk)
		if err != nil {
			return change, err
		}
		var ids []string
		var at []int // of each id in some
		for i := range some {
			if filter.matches(&some[i].JobInfo) {
				ids, at = append(ids, some[i].ID), append(at, i)
			}
		}
		left := leftDead{len(ids), len(ids)}
		if len(ids) > 0 && !dryRun {
			if left, err = do(ctx, &change, ids); err != nil {
				return change, err
			}
		}
		if left.part < len(ids) && round.left == 0 {
			round.left = some[at[left.part]].Died.UnixMicro()
		}
		if left.full < len(ids) {
			change.Matched += left.full
			if n := at[left.full]; n > 0 {
				change.Looked += n
				from, id = some[n-1].Died.UnixMicro(), some[n-1].ID
			}
			change.Next, change.Waiting = round.cursor(from, id), true
			return change, nil
		}
		change.Looked, change.Matched = change.Looked+len(some), change.Matched+len(ids)
		change.Next = round.cursor(walk.from, walk.id)
	}
	switch {
	case walk.ended && round.left > 0:
		change.Next, change.Waiting = deadRound{end: round.end}.cursor(round.left, ""), true
	case walk.ended:
		change.Next = ""
	}
	return change, nil
}

// deadRound is one pass over the dead letters of a change. A cursor holds it with the position: "end.left.position".
type deadRound struct {
	end  int64 // when the newest dead letter had died as the change began: later ones are ignored
	left int64 // when the first dead letter of this round died whose flow or group was full; 0 if there was none
}

func (r deadRound) cursor(from int64, id string) string {
	return fmt.Sprintf("%d.%d.%d.%s", r.end, r.left, from, id)
}

// round begins a round, or continues the round of a cursor.
func (d DeadLetters) round(ctx context.Context, w *deadWalk, cursor string) (r deadRound, err error) {
	if cursor == "" {
		r.end, err = d.newest(ctx, w.b)
	} else if r, err = parseRound(cursor, w); err != nil {
		err = badCursor(d.bucket)
	}
	w.end = min(w.end, r.end)
	return r, err
}

// newest returns when the newest dead letter died; 0 if there is none.
func (d DeadLetters) newest(ctx context.Context, b *store.Bucket) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.op.store.Timeout)
	defer cancel()
	some, err := d.op.store.Redis.ZRevRangeWithScores(ctx, b.Keys.Dead(), 0, 0).Result()
	if err != nil {
		return 0, fmt.Errorf("bucket %q: find its newest dead letter: %w", b.Name, err)
	}
	if len(some) == 0 {
		return 0, nil
	}
	return int64(some[0].Score), nil
}

// parseRound reads a cursor, and sets the walk to its position.
func parseRound(cursor string, w *deadWalk) (r deadRound, err error) {
	parts := strings.SplitN(cursor, ".", 4)
	if len(parts) < 4 || parts[3] != "" && !shaper.ValidID(parts[3]) {
		return r, errors.New("is no cursor")
	}
	for i, number := range []*int64{&r.end, &r.left, &w.from} {
		if *number, err = strconv.ParseInt(parts[i], 10, 64); err != nil {
			return r, err
		}
	}
	w.id = parts[3]
	return r, nil
}
