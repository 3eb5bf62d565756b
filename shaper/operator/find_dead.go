package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Bounds of one look at dead letters: longer ones go on from a cursor.
const (
	maxDeadFound  = 1000 // letters of one answer
	maxDeadLooked = 2000 // letters that one call looks at
	deadChunk     = 200  // of one pipeline, and of one redrive
)

// DeadFilter says which dead letters are meant. A zero field asks for nothing, so that the zero value means all.
type DeadFilter struct {
	Cause  string    // one of the Cause constants of package shaper
	Reason string    // of the last response, one word
	Flow   *string   // "" is a flow too
	Group  *string   // the same
	Status int       // HTTP status of the last response
	Since  time.Time // died then or later
	Until  time.Time // died before
	Text   string    // in the id, or in the detail or the body of the last response; capitals and small letters are the same
}

// Validate reports every fault, joined, each a [*shaper.FieldError]; or nil.
func (f *DeadFilter) Validate() error {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, &shaper.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if causes := shaper.Causes(); f.Cause != "" && !slices.Contains(causes, f.Cause) {
		fail("cause", "%q: want one of %s", f.Cause, strings.Join(causes, ", "))
	}
	if f.Status != 0 && (f.Status < 100 || f.Status > 599) {
		fail("status", "%d: want a status of HTTP, 100 to 599", f.Status)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		fail("until", "is not after since")
	}
	return errors.Join(errs...)
}

func (f *DeadFilter) matches(info *shaper.JobInfo) bool {
	last := &info.Last
	return (f.Cause == "" || f.Cause == last.Cause) && (f.Reason == "" || f.Reason == last.Reason) && (f.Status == 0 || f.Status == last.Status) &&
		(f.Flow == nil || *f.Flow == info.Flow) && (f.Group == nil || *f.Group == info.Group) &&
		(f.Since.IsZero() || !info.Died.Before(f.Since)) && (f.Until.IsZero() || info.Died.Before(f.Until)) &&
		(f.Text == "" || slices.ContainsFunc([]string{info.ID, last.Detail, last.Body}, func(text string) bool {
			return strings.Contains(strings.ToLower(text), strings.ToLower(f.Text))
		}))
}

// DeadPage are dead letters that a filter means.
type DeadPage struct {
	Letters []shaper.JobInfo
	Looked  int    // dead letters that were looked at
	Next    string // the cursor to go on from; "" if there are no more. There may be more also where Letters is empty
}

// Find returns dead letters that the filter means, the newest first: limit of them at most (1 to 1000; others are cut to that), from
// a cursor on that an earlier call has returned, "" at first. It looks at 2000 at most. Letters that come or go meanwhile are in it or not;
// of the others none is left out and none comes twice. Four round trips for each 200 letters that it looks at.
func (d DeadLetters) Find(ctx context.Context, filter DeadFilter, cursor string, limit int) (DeadPage, error) {
	var page DeadPage
	walk, err := d.walk(ctx, filter, cursor, false)
	if err != nil {
		return page, err
	}
	limit = min(max(limit, 1), maxDeadFound)
	for page.Looked < maxDeadLooked {
		some, err := walk.next(ctx, min(deadChunk, maxDeadLooked-page.Looked))
		if err != nil {
			return page, err
		}
		for i := range some {
			page.Looked++
			page.Next = walk.positionOf(&some[i])
			if !filter.matches(&some[i]) {
				continue
			}
			if page.Letters = append(page.Letters, some[i]); len(page.Letters) == limit {
				return page, nil
			}
		}
		if walk.ended {
			page.Next = ""
			break
		}
	}
	return page, nil
}

// DeadChange says what became of dead letters that a filter means.
type DeadChange struct {
	Redriven
	Dropped int    // for good
	Matched int    // that the filter means, of those that were looked at
	Looked  int    // dead letters that were looked at
	Next    string // the cursor to go on from; "" if all were looked at, or the bucket is full
}

// RedriveFound redrives the dead letters that the filter means, the oldest first, from a cursor on, "" at first. It looks at 2000 at most, and
// ends where the bucket is full; those whose flow or group takes none stay dead. With dryRun it only counts what it would try. Six round
// trips for each 200 letters that it looks at.
func (d DeadControl) RedriveFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool) (DeadChange, error) {
	change, err := d.changeFound(ctx, filter, cursor, dryRun, func(ctx context.Context, change *DeadChange, ids []string) error {
		part, err := d.op.redrive(ctx, d.bucket, ids)
		change.Add(part)
		return err
	})
	d.noteRedriven(ctx, change.Redriven)
	return change, err
}

// DropFound drops the dead letters that the filter means, as RedriveFound redrives them. One round trip more for each that it drops.
func (d DeadControl) DropFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool) (DeadChange, error) {
	change, err := d.changeFound(ctx, filter, cursor, dryRun, func(ctx context.Context, change *DeadChange, ids []string) error {
		for _, id := range ids {
			state, err := d.op.store.Cancel(ctx, d.bucket, id, shaper.StateDead)
			switch {
			case errors.Is(err, shaper.ErrNotFound): // somebody else dropped it, and it is forgotten already
			case err != nil:
				return err
			case state == shaper.StateDropped:
				change.Dropped++
			}
		}
		return nil
	})
	if change.Dropped > 0 {
		d.control().note(ctx, d.bucket, metrics.ActionDrop, "jobs", change.Dropped)
	}
	return change, err
}

func (d DeadControl) changeFound(ctx context.Context, filter DeadFilter, cursor string, dryRun bool,
	do func(ctx context.Context, change *DeadChange, ids []string) error,
) (DeadChange, error) {
	var change DeadChange
	walk, err := d.walk(ctx, filter, cursor, true)
	if err != nil {
		return change, err
	}
	for change.Looked < maxDeadLooked && !walk.ended {
		some, err := walk.next(ctx, deadChunk)
		if err != nil {
			return change, err
		}
		var ids []string
		for i := range some {
			if filter.matches(&some[i]) {
				ids = append(ids, some[i].ID)
			}
		}
		change.Looked, change.Matched = change.Looked+len(some), change.Matched+len(ids)
		if len(ids) > 0 && !dryRun {
			if err := do(ctx, &change, ids); err != nil {
				return change, err
			}
		}
		if change.Full > 0 {
			change.Next = ""
			return change, nil
		}
		if len(some) > 0 {
			change.Next = walk.positionOf(&some[len(some)-1])
		}
	}
	if walk.ended {
		change.Next = ""
	}
	return change, nil
}

// deadWalk goes through dead letters in the order of their deaths, of one instant in that of their ids. It remembers a position, not a
// number of letters, so that it misses none while others go.
type deadWalk struct {
	op       *Operator
	b        *store.Bucket
	forwards bool // the oldest first
	from     int64
	id       string // the letter behind which to go on; "" at the beginning
	end      string // the score at which to stop
	ended    bool
}

func (d DeadLetters) walk(ctx context.Context, filter DeadFilter, cursor string, forwards bool) (*deadWalk, error) {
	if err := filter.Validate(); err != nil {
		return nil, &InvalidChangeError{d.bucket, err}
	}
	b, err := d.op.store.Readable(ctx, d.bucket)
	if err != nil {
		return nil, err
	}
	w := &deadWalk{op: d.op, b: b, forwards: forwards, end: "-inf"}
	first, last := int64(0), int64(1)<<53
	if !filter.Since.IsZero() {
		first = filter.Since.UnixMicro()
	}
	if !filter.Until.IsZero() {
		last = filter.Until.UnixMicro()
	}
	if w.from, w.end = last, strconv.FormatInt(first, 10); forwards {
		w.from, w.end = first, strconv.FormatInt(last, 10)
	}
	if cursor == "" {
		return w, nil
	}
	at, id, ok := strings.Cut(cursor, ".")
	if w.from, err = strconv.ParseInt(at, 10, 64); err != nil || !ok || !shaper.ValidID(id) {
		return nil, badCursor(d.bucket)
	}
	w.id = id
	return w, nil
}

func (w *deadWalk) positionOf(info *shaper.JobInfo) string {
	return fmt.Sprintf("%d.%s", info.Died.UnixMicro(), info.ID)
}

// next returns the next letters, n at most; ended says that there are no more.
func (w *deadWalk) next(ctx context.Context, n int) ([]shaper.JobInfo, error) {
	var some []redis.Z
	for offset := 0; len(some) == 0 && !w.ended; offset += n {
		page, err := w.page(ctx, offset, n)
		if err != nil {
			return nil, fmt.Errorf("bucket %q: list dead letters: %w", w.b.Name, err)
		}
		w.ended = len(page) < n
		some = slices.DeleteFunc(page, w.isBehind)
	}
	if len(some) == 0 {
		return nil, nil
	}
	last := some[len(some)-1]
	w.from = int64(last.Score)
	w.id, _ = last.Member.(string)
	return w.op.deadInfos(ctx, w.b, some)
}

// page reads some ids, of which the first may be behind already.
func (w *deadWalk) page(ctx context.Context, offset, n int) ([]redis.Z, error) {
	ctx, cancel := context.WithTimeout(ctx, w.op.store.Timeout)
	defer cancel()
	return w.op.store.Redis.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
		Key: w.b.Keys.Dead(), Start: strconv.FormatInt(w.from, 10), Stop: w.end, ByScore: true, Rev: !w.forwards, Offset: int64(offset), Count: int64(n),
	}).Result()
}

// isBehind reports whether a letter of the instant at which the walk stands was there before.
func (w *deadWalk) isBehind(z redis.Z) bool {
	id, _ := z.Member.(string)
	if w.id == "" || int64(z.Score) != w.from {
		return false
	}
	if w.forwards {
		return id <= w.id
	}
	return id >= w.id
}
