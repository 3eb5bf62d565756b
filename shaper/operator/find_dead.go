package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Bounds of one search of dead letters: a longer one continues from a cursor.
const (
	maxDeadFound  = 1000 // dead letters in one reply
	maxDeadLooked = 2000 // dead letters that one call examines
	deadChunk     = 200  // of one pipeline, and of one redrive
)

// DeadFilter selects dead letters. A zero field matches everything, so the zero value matches all.
type DeadFilter struct {
	Cause  string    `json:"cause,omitempty"`                                       // one of the Cause constants of package shaper
	Reason string    `json:"reason,omitempty"`                                      // of the last response, one word
	Flow   *string   `json:"flow,omitempty"`                                        // "" is a flow too
	Group  *string   `json:"group,omitempty"`                                       // the same
	Status int       `json:"status,omitempty" jsonschema:"minimum=100,maximum=599"` // HTTP status of the last response
	Since  time.Time `json:"since,omitzero"`                                        // died then or later
	Until  time.Time `json:"until,omitzero"`                                        // died before
	Text   string    `json:"q,omitempty"`                                           // in the id, or in the detail or the body of the last response; case does not matter
}

// logged is the filter for the log.
func (f *DeadFilter) logged() (args []any) {
	add := func(name, value string, given bool) {
		if given {
			args = append(args, name, value)
		}
	}
	if f.Group != nil {
		add("group", *f.Group, true)
	}
	if f.Flow != nil {
		add("flow", *f.Flow, true)
	}
	add("cause", f.Cause, f.Cause != "")
	add("reason", f.Reason, f.Reason != "")
	add("status", strconv.Itoa(f.Status), f.Status != 0)
	add("since", f.Since.UTC().Format(time.RFC3339), !f.Since.IsZero())
	add("until", f.Until.UTC().Format(time.RFC3339), !f.Until.IsZero())
	add("text", f.Text, f.Text != "")
	return args
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

// DeadPage are dead letters that match a filter.
type DeadPage struct {
	DeadLetters []shaper.JobInfo
	Looked      int    // dead letters that were examined
	Next        string // the cursor to go on from; "" if there are no more. There may be more even if DeadLetters is empty
}

// Find returns dead letters that match the filter, newest first: at most limit (clamped to 1 to 1000), from the cursor of an earlier call on, "" at
// first. It examines at most 2000, or 16 MiB of what Redis keeps of them, and returns about a mebibyte. It may include or miss dead letters that
// appear or disappear meanwhile; it returns each other one exactly once. Two round trips for each 200 that it examines, or one for each mebibyte.
func (d DeadLetters) Find(ctx context.Context, filter DeadFilter, cursor string, limit int) (DeadPage, error) {
	found := DeadPage{Next: cursor}
	walk, err := d.walk(ctx, filter, false)
	if err != nil {
		return found, err
	}
	if cursor != "" && !walk.goOn(cursor) {
		return found, badCursor(d.bucket)
	}
	room := page{most: min(max(limit, 1), maxDeadFound)}
	for walk.goesOn(found.Looked) {
		some, err := walk.next(ctx, min(deadChunk, maxDeadLooked-found.Looked))
		if err != nil {
			return found, err
		}
		for i := range some {
			matches := filter.matches(&some[i].JobInfo)
			if matches && !room.takes(some[i].size) {
				return found, nil
			}
			found.Looked++
			found.Next = walk.positionOf(&some[i].JobInfo)
			if !matches {
				continue
			}
			if found.DeadLetters = append(found.DeadLetters, some[i].JobInfo); room.full() {
				return found, nil
			}
		}
	}
	if found.Next = walk.position(); walk.ended {
		found.Next = ""
	}
	return found, nil
}

// deadWalk iterates over dead letters in the order of their deaths, and of their ids at one instant. It stores a position, not a count, so it misses
// none while others disappear.
type deadWalk struct {
	op       *Operator
	b        *store.Bucket
	forwards bool // oldest first
	from     int64
	id       string // the dead letter after which to continue; "" at the beginning
	end      int64  // the score at which to stop
	ended    bool
	reader   *jobReader
}

// goesOn reports whether a call that has examined looked dead letters may examine more.
func (w *deadWalk) goesOn(looked int) bool {
	return !w.ended && looked < maxDeadLooked && w.reader.left > 0
}

func (d DeadLetters) walk(ctx context.Context, filter DeadFilter, forwards bool) (*deadWalk, error) {
	if err := filter.Validate(); err != nil {
		return nil, &InvalidChangeError{d.bucket, err}
	}
	b, err := d.op.store.Readable(ctx, d.bucket)
	if err != nil {
		return nil, err
	}
	first, last := int64(0), int64(1)<<53
	if !filter.Since.IsZero() {
		first = filter.Since.UnixMicro()
	}
	if !filter.Until.IsZero() {
		last = filter.Until.UnixMicro()
	}
	w := &deadWalk{op: d.op, b: b, from: last, end: first, reader: d.op.newJobReader(b, d.bare)}
	if forwards {
		w.forwards, w.from, w.end = true, first, last
		w.reader.bare = true // a change needs no payloads
	}
	return w, nil
}

// goOn sets the walk to a position, after its dead letter, and reports whether the text is a position.
func (w *deadWalk) goOn(position string) bool {
	at, id, ok := strings.Cut(position, ".")
	from, err := strconv.ParseInt(at, 10, 64)
	w.from, w.id = from, id
	return ok && err == nil && shaper.ValidID(id)
}

func (w *deadWalk) positionOf(info *shaper.JobInfo) string {
	return fmt.Sprintf("%d.%s", info.Died.UnixMicro(), info.ID)
}

// position returns the position of the last examined dead letter, also if it is gone.
func (w *deadWalk) position() string { return fmt.Sprintf("%d.%s", w.from, w.id) }

// next returns the next dead letters, at most n; w.ended is set if there are no more.
func (w *deadWalk) next(ctx context.Context, n int) ([]deadLetter, error) {
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
	letters, read, err := deadLetters(ctx, w.reader, some)
	if err != nil || read == 0 {
		return nil, err
	}
	last := some[read-1]
	w.from = int64(last.Score)
	w.id, _ = last.Member.(string)
	w.ended = w.ended && read == len(some)
	return letters, nil
}

// page reads some ids; the walk may have passed the first ones already.
func (w *deadWalk) page(ctx context.Context, offset, n int) ([]redis.Z, error) {
	ctx, cancel := context.WithTimeout(ctx, w.op.store.Timeout)
	defer cancel()
	return w.op.store.Redis.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
		Key: w.b.Keys.Dead(), Start: strconv.FormatInt(w.from, 10), Stop: strconv.FormatInt(w.end, 10), ByScore: true, Rev: !w.forwards, Offset: int64(offset), Count: int64(n),
	}).Result()
}

// isBehind reports whether a dead letter of the instant of the walk's position was returned already.
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

// DeadReason is a reason for which jobs died, and how many died of it.
type DeadReason struct {
	Cause       string    `json:"cause"`            // one of the Cause constants of package shaper
	Reason      string    `json:"reason,omitempty"` // of the last response
	Status      int       `json:"status,omitempty"` // of HTTP, of the last response
	DeadLetters int       `json:"dead_letters"`
	Oldest      time.Time `json:"oldest"` // when the first and the last of them died
	Newest      time.Time `json:"newest"`
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
			one.DeadLetters++
			one.Oldest = info.Died
		}
	}
	for _, one := range reasons {
		sum.Reasons = append(sum.Reasons, *one)
	}
	slices.SortFunc(sum.Reasons, func(a, b DeadReason) int {
		return cmp.Or(b.DeadLetters-a.DeadLetters, cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Reason, b.Reason), a.Status-b.Status)
	})
	if sum.Next = walk.position(); walk.ended {
		sum.Next = ""
	}
	return sum, nil
}
