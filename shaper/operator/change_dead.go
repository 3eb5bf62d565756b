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

// sparePlaces says how many places a redrive by filter leaves to producers: one in ten.
const sparePlaces = 10

// firstChunk is how many letters a call looks at first, and then at twice as many: one that finds its bucket full has read little.
const firstChunk = 25

// DeadChange says what became of dead letters that a filter means.
type DeadChange struct {
	Redriven
	Dropped int // for good
	Matched int // that the filter means, of those that were looked at
	Looked  int // dead letters that were looked at, and need no second look unless Waiting

	// Next is the cursor to go on from; "" if none is left that could be changed. It passes over no letter that was left dead because
	// its bucket, flow or group is full.
	Next string

	// Waiting says that nothing more can be moved for now: go on from Next when jobs have left.
	Waiting bool
}

// RedriveFound redrives the dead letters that the filter means, the oldest first, from a cursor on, "" at first. It looks at 2000 at
// most. Letters that die after the first call are left alone, so that jobs that fail again do not come round.
//
// It leaves places to producers: it fills flows and groups to nine tenths, and the bucket to nine tenths of what jobs of priority low may
// fill (see [shaper.Shed]). Where the bucket has no more room, it ends, and
// Next leads to the first letter that found none. A letter whose flow or group has no room is passed over, and comes again in the round
// after this one, which Next leads to. Letters of disabled flows stay dead. It may be called again after an error, with the same cursor.
// With dryRun it only counts what it would try. Six round trips for each 200 letters that it looks at.
func (d DeadControl) RedriveFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool) (DeadChange, error) {
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

// DropFound drops the dead letters that the filter means, in the order in which RedriveFound redrives them: 2000 looked at in one call, and none that
// died after the first. One round trip more for each that it drops.
func (d DeadControl) DropFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool) (DeadChange, error) {
	change, err := d.changeFound(ctx, filter, cursor, dryRun, func(ctx context.Context, change *DeadChange, ids []string) (leftDead, error) {
		for _, id := range ids {
			state, err := d.op.store.Cancel(ctx, d.bucket, id, shaper.StateDead)
			switch {
			case errors.Is(err, shaper.ErrNotFound): // another process dropped it, and it is forgotten already
			case err != nil:
				return leftDead{}, err
			case state == shaper.StateDropped:
				change.Dropped++
			}
		}
		return leftDead{len(ids), len(ids)}, nil
	})
	if change.Dropped > 0 {
		d.control().note(ctx, d.bucket, metrics.ActionDrop, append([]any{"jobs", change.Dropped}, filter.logged()...)...)
	}
	return change, err
}

// leftDead says which was the first of some letters that found its bucket full, and which found its flow or group full; their number
// if none did.
type leftDead struct{ full, part int }

// changeFound looks at the next letters and has those changed that the filter means.
func (d DeadControl) changeFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool,
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

// deadRound is one walk through the letters that a change means. A cursor has it with the position: "end.left.position".
type deadRound struct {
	end  int64 // when the newest letter had died as the change began: later ones are left alone
	left int64 // when the first letter of this round died whose flow or group was full; 0 if there was none
}

func (r deadRound) cursor(from int64, id string) string {
	return fmt.Sprintf("%d.%d.%d.%s", r.end, r.left, from, id)
}

// round begins a round, or goes on with that of a cursor.
func (d DeadControl) round(ctx context.Context, w *deadWalk, cursor string) (r deadRound, err error) {
	if cursor == "" {
		r.end, err = d.newest(ctx, w.b)
	} else if r, err = parseRound(cursor, w); err != nil {
		err = badCursor(d.bucket)
	}
	w.end = min(w.end, r.end)
	return r, err
}

// newest is when the newest dead letter died; 0 if there is none.
func (d DeadControl) newest(ctx context.Context, b *store.Bucket) (int64, error) {
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

// parseRound reads a cursor, and has the walk stand where it says.
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
