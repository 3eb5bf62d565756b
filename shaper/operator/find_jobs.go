package operator

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Bounds of one search of jobs: a longer one continues from a cursor.
const (
	maxJobsFound  = 1000 // in one reply
	maxJobsLooked = 2000 // that one call examines
	maxFlowLooks  = 200  // that one call looks into
	jobChunk      = 200  // of one pipeline
)

// JobPage are jobs that a filter means.
type JobPage struct {
	Jobs   []shaper.JobInfo // without their positions, and without what holds them back
	Looked int              // jobs that were examined
	Next   string           // the cursor to go on from; "" at the end. There may be more even if Jobs is empty
}

// jobWalk is a position in the jobs of a bucket: first the jobs in flight, then the waiting ones, flow by flow.
type jobWalk struct {
	Stage int    `json:"s"`           // 0 the leases; 1 to 5 the places of the flow
	Index int64  `json:"i"`           // in the place
	Flow  string `json:"f"`           // its name in Redis
	Scan  uint64 `json:"c,omitempty"` // cursor of the flows after Flow
	In    bool   `json:"n,omitempty"` // the position is in Flow: else Flow is the last one that was examined
}

func (w *jobWalk) cursor() string {
	text, _ := json.Marshal(w) // numbers and texts always marshal
	return base64.RawURLEncoding.EncodeToString(text)
}

// Find returns jobs that match the filter: at most limit (clamped to 1 to 1000), from the cursor of an earlier call on, "" at first. Jobs in flight
// come first, then flow by flow the waiting ones, in their order. It examines at most 2000 jobs, 200 flows, and 16 MiB of what Redis keeps of jobs;
// it returns about a mebibyte. Jobs that are done come with what is kept of their results, newest first, in one round trip for each 200. It may miss
// jobs that appear, disappear or move meanwhile, and return some twice. Two round trips for each flow, and two for each 200 jobs, or one for each
// mebibyte.
func (b Bucket) Find(ctx context.Context, filter JobFilter, cursor string, limit int) (JobPage, error) {
	var found JobPage
	if err := filter.Validate(); err != nil {
		return found, &InvalidChangeError{b.name, err}
	}
	known, err := b.op.store.Readable(ctx, b.name)
	if err != nil {
		return found, err
	}
	if filter.State == shaper.StateDone {
		return b.findDone(ctx, known, &filter, cursor, limit)
	}
	var walk jobWalk
	if cursor != "" {
		text, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(text, &walk) != nil || walk.Stage < 0 || walk.Stage > len(known.Keys.Places("")) || walk.Index < 0 {
			return found, badCursor(b.name)
		}
	}
	f := &finder{op: b.op, b: known, filter: &filter, walk: walk, reader: b.op.newJobReader(known, b.bare), room: page{most: min(max(limit, 1), maxJobsFound)}}
	err = f.run(ctx, &found)
	if !f.ended {
		found.Next = f.walk.cursor()
	}
	return found, err
}

// finder iterates over the jobs of a bucket.
type finder struct {
	op     *Operator
	b      *store.Bucket
	filter *JobFilter
	walk   jobWalk
	reader *jobReader
	room   page
	flows  int // that were looked into
	ended  bool
}

func (f *finder) run(ctx context.Context, found *JobPage) error {
	for !f.ended && found.Looked < maxJobsLooked && f.flows < maxFlowLooks && f.reader.left > 0 {
		some, err := f.page(ctx)
		if err != nil {
			return fmt.Errorf("bucket %q: list its jobs: %w", f.b.Name, err)
		}
		jobs, err := f.read(ctx, some)
		if err != nil {
			return fmt.Errorf("bucket %q: read its jobs: %w", f.b.Name, err)
		}
		for i := range jobs {
			info, here := f.info(some[i], &jobs[i])
			matches := here && f.filter.matches(info.State, info.Group, info.Flow, info.Enqueued)
			if matches && !f.room.takes(jobs[i].size()) {
				return nil
			}
			f.walk.Index++
			found.Looked++
			if !matches {
				continue
			}
			if found.Jobs = append(found.Jobs, info); f.room.full() {
				return nil
			}
		}
		if len(some) < jobChunk && len(jobs) == len(some) {
			if err := f.onward(ctx); err != nil {
				return fmt.Errorf("bucket %q: list its flows: %w", f.b.Name, err)
			}
		}
	}
	return nil
}

// page reads the next ids of the place, with their scores where it has some.
func (f *finder) page(ctx context.Context) ([]redis.Z, error) {
	ctx, cancel := context.WithTimeout(ctx, f.op.store.Timeout)
	defer cancel()
	if f.walk.Stage > 0 && !f.walk.In { // between two flows
		return nil, nil
	}
	from, to := f.walk.Index, f.walk.Index+jobChunk-1
	places, client := f.b.Keys.Places(f.walk.Flow), f.op.store.Redis
	if !f.mayBeHere(len(places)) {
		return nil, nil
	}
	switch later := len(places); f.walk.Stage {
	case 0:
		return client.ZRangeWithScores(ctx, f.b.Keys.Leases(), from, to).Result()
	case later:
		return client.ZRangeWithScores(ctx, places[later-1], from, to).Result()
	default:
		ids, err := client.LRange(ctx, places[f.walk.Stage-1], from, to).Result()
		some := make([]redis.Z, len(ids))
		for i, id := range ids {
			some[i].Member = id
		}
		return some, err
	}
}

// mayBeHere reports whether jobs of the wanted state can be in the place: later is the number of the last one.
func (f *finder) mayBeHere(later int) bool {
	switch f.filter.State {
	case "":
		return true
	case shaper.StateInFlight:
		return f.walk.Stage == 0
	case AnyWaiting:
		return f.walk.Stage > 0
	case shaper.StateQueued:
		return f.walk.Stage > 0 && f.walk.Stage < later
	default:
		return f.walk.Stage == later
	}
}

// read reads what Redis keeps of the first of some jobs.
func (f *finder) read(ctx context.Context, some []redis.Z) ([]storedJob, error) {
	ids := make([]string, len(some))
	for i, z := range some {
		ids[i], _ = z.Member.(string)
	}
	return f.reader.read(ctx, ids)
}

// info returns a job, and whether it is still where it was found: its id may be the leftover of a cancelled job.
func (f *finder) info(z redis.Z, stored *storedJob) (info shaper.JobInfo, here bool) {
	if stored.body == "" {
		return info, false
	}
	info.ID, _ = z.Member.(string)
	info.Bucket = f.b.Name
	info, err := stored.info(info)
	return info, err == nil && f.isHere(&info, stored.meta, z.Score)
}

// isHere sets the state of a job by the list in which it was found, and reports whether the job is still there.
func (f *finder) isHere(info *shaper.JobInfo, metaText string, score float64) bool {
	state, at := shaper.StateQueued, time.UnixMicro(int64(score))
	switch f.walk.Stage {
	case 0:
		state, info.Deadline = shaper.StateInFlight, at
	case len(f.b.Keys.Places("")):
		if state, info.Due = shaper.StateScheduled, at; metaText != "" {
			state = shaper.StateRetrying
		}
	}
	info.State = state
	if metaText != "" && codec.CodeOf(state) != metaText[:1] {
		return false
	}
	return f.walk.Stage == 0 || codec.PathOf(f.b.Levels(), info.Group, info.Flow) == f.walk.Flow
}

// onward goes to the next place.
func (f *finder) onward(ctx context.Context) error {
	last := len(f.b.Keys.Places(""))
	f.walk.Index = 0
	if f.walk.Stage > 0 && f.walk.Stage < last {
		f.walk.Stage++
		return nil
	}
	if f.walk.Stage == 0 && f.filter.State == shaper.StateInFlight {
		f.ended = true
		return nil
	}
	return f.nextFlow(ctx)
}

// nextFlow goes to the next flow that has jobs.
func (f *finder) nextFlow(ctx context.Context) error {
	switch levels := f.b.Levels(); {
	case f.walk.In && (levels == codec.LevelsNone || f.filter.Flow != nil && (levels == codec.LevelsFlows || f.filter.Group != nil)):
		f.ended = true
		return nil
	case levels == codec.LevelsNone:
		f.walk.Flow = ""
	case f.filter.Flow != nil && levels == codec.LevelsFlows:
		f.walk.Flow = *f.filter.Flow
	case f.filter.Flow != nil && f.filter.Group != nil:
		f.walk.Flow = codec.FlowPath(*f.filter.Group, *f.filter.Flow)
	default:
		return f.scan(ctx)
	}
	f.walk.Stage, f.walk.In = 1, true
	return nil
}

// scan finds the next flow by name within one step of HSCAN, which has another order: so another call finds the position again.
func (f *finder) scan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.op.store.Timeout)
	defer cancel()
	for ; ; f.flows++ {
		pairs, next, err := f.op.store.Redis.HScan(ctx, f.b.Keys.Flows(), f.walk.Scan, "", jobChunk).Result()
		if err != nil {
			return err
		}
		var names []string
		for i := 0; i+1 < len(pairs); i += 2 {
			if state := codec.ParseFlowState(pairs[i+1]); state.Waiting() > 0 && (!f.walk.In || pairs[i] > f.walk.Flow) && f.mayHave(pairs[i]) {
				names = append(names, pairs[i])
			}
		}
		if len(names) > 0 {
			f.flows++
			f.walk.Flow, f.walk.Stage, f.walk.In = slices.Min(names), 1, true
			return nil
		}
		if f.walk.Scan, f.walk.In = next, false; next == 0 {
			f.ended = true
			return nil
		}
		if f.flows >= maxFlowLooks {
			f.walk.Stage = len(f.b.Keys.Places("")) // the next call goes on with another flow
			return nil
		}
	}
}

// mayHave reports whether the filter means jobs of a flow, by its name in Redis.
func (f *finder) mayHave(path string) bool {
	if f.b.Levels() != codec.LevelsGroups {
		return true
	}
	group, flow, ok := codec.SplitPath(path)
	return ok && (f.filter.Group == nil || *f.filter.Group == group) && (f.filter.Flow == nil || *f.filter.Flow == flow)
}
