package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const maxResultsRead = 16 << 20 // bytes of results that one call reads

// resultWalk is a position in the results of a bucket, which are ordered by the times at which they are dropped: a time, and how many of it to skip.
type resultWalk struct {
	at   string
	skip int
}

func (w resultWalk) cursor() string { return w.at + "." + strconv.Itoa(w.skip) }

// readWalk reads a cursor, "" at the beginning.
func readWalk(cursor string) (resultWalk, bool) {
	if cursor == "" {
		return resultWalk{at: "+inf"}, true
	}
	at, text, ok := strings.Cut(cursor, ".")
	_, err := strconv.ParseInt(at, 10, 64)
	skip, err2 := strconv.Atoi(text)
	return resultWalk{at, skip}, ok && err == nil && err2 == nil && skip >= 0
}

// onward moves past a result that is dropped at that time.
func (w *resultWalk) onward(at string) {
	if w.at != at {
		w.at, w.skip = at, 0
	}
	w.skip++
}

// findDone is [Bucket.Find] for jobs that are done: those whose results are kept, newest first.
func (b Bucket) findDone(ctx context.Context, known *store.Bucket, filter *JobFilter, cursor string, limit int) (found JobPage, err error) {
	walk, ok := readWalk(cursor)
	if !ok {
		return found, badCursor(b.name)
	}
	room := page{most: min(max(limit, 1), maxJobsFound)}
	for left := maxResultsRead; left > 0 && found.Looked < maxJobsLooked; {
		reply, err := b.op.store.Run(ctx, lua.InspectResults, known.Keys.Of(lua.InspectResults), walk.at, walk.skip, jobChunk, store.ScriptBytes)
		if err != nil {
			return found, fmt.Errorf("bucket %q: %w", b.name, err)
		}
		r := lua.NewReader(reply)
		left -= int(r.Int())
		if r.Err() == nil && r.Left() == 0 {
			found.Next = ""
			return found, nil
		}
		for r.Left() > 0 {
			id, at, head := r.Text(), r.Text(), r.Text()
			if r.Err() != nil {
				return found, fmt.Errorf("bucket %q: script inspect_results: %w", b.name, r.Err())
			}
			result, err := codec.OpenResult(b.name, id, head+"\n")
			matches := head != "" && err == nil && filter.matches(result.State, result.Group, result.Flow, departures(&result)...)
			if matches && !room.takes(len(id)+len(head)) {
				return found, nil
			}
			walk.onward(at)
			found.Next = walk.cursor()
			if found.Looked++; !matches {
				continue
			}
			if found.Jobs = append(found.Jobs, doneJob(&result)); room.full() {
				return found, nil
			}
		}
	}
	return found, nil
}

// departures returns when the deliveries of a job departed, as far as that is kept.
func departures(r *shaper.JobResult) (times []time.Time) {
	for _, one := range r.Deliveries() {
		times = append(times, one.At)
	}
	return times
}

// doneJob returns a job that has ended, by its result.
func doneJob(r *shaper.JobResult) shaper.JobInfo {
	return shaper.JobInfo{ID: r.ID, Bucket: r.Bucket, Owner: r.Owner, State: r.State, Ended: r}
}
