package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// FlowRemoval counts what one call of [Flow.Remove] dropped or, with dryRun, would drop.
type FlowRemoval struct {
	Waiting int64    // jobs that waited, also delayed ones and retries
	Dead    int      // dead letters
	Results int      // kept results
	Own     []string // what the flow had of its own: settings, pause, disabled, hold
	// InFlight is the number of jobs in flight, which end as usual. Set by the last call.
	InFlight int64
	Next     string // the cursor to go on with; "" at the end
}

// Add adds what a further call dropped.
func (r *FlowRemoval) Add(more FlowRemoval) {
	r.Waiting, r.Dead, r.Results = r.Waiting+more.Waiting, r.Dead+more.Dead, r.Results+more.Results
	r.Own, r.InFlight, r.Next = append(r.Own, more.Own...), more.InFlight, more.Next
}

// Stages of a removal. The settings go last: a pause holds until nothing waits.
const (
	removeWaiting = "waiting"
	removeDead    = "dead"
	removeResults = "results"
	removeOwn     = "own"
)

// Remove drops all data of a flow in its bucket, for good: its waiting jobs, its dead letters, its kept results, and then its settings, its pause,
// its hold or open circuit breaker, and its disabled state. Jobs in flight are not touched. Jobs that arrive meanwhile may stay.
//
// A call does one part of the work and returns the cursor to go on with, "" at first and at the end. It examines each dead letter and result once, up
// to 2000 of these in a call. A removal that was interrupted may begin again: it drops the rest. With dryRun nothing is changed.
func (f Flow) Remove(ctx context.Context, cursor string, dryRun bool) (FlowRemoval, error) {
	if err := f.op.hasAuthor(); err != nil && !dryRun {
		return FlowRemoval{}, err
	}
	t, err := f.target(ctx)
	if err != nil {
		return FlowRemoval{}, err
	}
	stage, at, _ := strings.Cut(cursor, ":")
	switch stage {
	case "", removeWaiting:
		return f.removeWaiting(ctx, dryRun)
	case removeDead:
		return f.removeDead(ctx, at, dryRun)
	case removeResults:
		return f.removeResults(ctx, at, dryRun)
	case removeOwn:
		return f.removeOwn(ctx, t, dryRun)
	}
	return FlowRemoval{}, badCursor(f.bucket)
}

func (f Flow) removeWaiting(ctx context.Context, dryRun bool) (r FlowRemoval, err error) {
	r.Next = removeDead + ":"
	if dryRun {
		info, err := f.Info(ctx)
		r.Waiting = info.Waiting
		return r, err
	}
	purged, err := f.Purge(ctx, PurgeOptions{})
	r.Waiting = purged.Jobs
	if errors.Is(err, context.DeadlineExceeded) && purged.Left > 0 { // the next call or the sweeper removes what is moved out
		r.Next, err = removeWaiting, nil
	}
	return r, err
}

func (f Flow) removeDead(ctx context.Context, at string, dryRun bool) (r FlowRemoval, err error) {
	filter := DeadFilter{Flow: f.flow, Group: f.group}
	change, err := f.op.Bucket(f.bucket).Dead().DropFound(ctx, filter, at, dryRun)
	r.Dead, r.Next = change.Dropped, removeDead+":"+change.Next
	if dryRun {
		r.Dead = change.Matched
	}
	if change.Next == "" {
		r.Next = removeResults + ":"
	}
	return r, err
}

func (f Flow) removeResults(ctx context.Context, at string, dryRun bool) (r FlowRemoval, err error) {
	known, err := f.op.store.Readable(ctx, f.bucket)
	if err != nil {
		return r, err
	}
	walk, ok := readWalk(at)
	if !ok {
		return r, badCursor(f.bucket)
	}
	filter := JobFilter{Flow: f.flow, Group: f.group}
	for looked := 0; looked < maxJobsLooked; {
		ids, n, err := f.someResults(ctx, known, &walk, &filter, dryRun)
		switch {
		case err != nil:
			return r, err
		case n == 0:
			r.Next = removeOwn
			return r, nil
		case len(ids) > 0 && !dryRun:
			reply, err := f.op.store.Run(ctx, lua.DropResults, known.Keys.Of(lua.DropResults), ids...)
			if err != nil {
				return r, fmt.Errorf("bucket %q: drop results: %w", f.bucket, err)
			}
			dropped, _ := reply.(int64)
			r.Results += int(dropped)
		default:
			r.Results += len(ids)
		}
		looked += n
		r.Next = removeResults + ":" + walk.cursor()
	}
	return r, nil
}

// someResults finds ids of results of the flow among the next n. Where they will be dropped, the walk does not count them.
func (f Flow) someResults(ctx context.Context, known *store.Bucket, walk *resultWalk, filter *JobFilter, dryRun bool) (ids []any, n int, err error) {
	reply, err := f.op.store.Run(ctx, lua.InspectResults, known.Keys.Of(lua.InspectResults), walk.at, walk.skip, jobChunk, store.ScriptBytes)
	if err != nil {
		return nil, 0, fmt.Errorf("bucket %q: read results: %w", f.bucket, err)
	}
	r := lua.NewReader(reply)
	for r.Int(); r.Left() > 0; n++ {
		id, at, head := r.Text(), r.Text(), r.Text()
		result, err := codec.OpenResult(f.bucket, id, head+"\n")
		if matches := head != "" && err == nil && filter.matches(result.State, result.Group, result.Flow); matches {
			ids = append(ids, id)
			if !dryRun {
				continue
			}
		}
		walk.onward(at)
	}
	if r.Err() != nil {
		return nil, 0, fmt.Errorf("bucket %q: script inspect_results: %w", f.bucket, r.Err())
	}
	return ids, n, nil
}

// removeOwn ends the removal.
func (f Flow) removeOwn(ctx context.Context, t target, dryRun bool) (r FlowRemoval, err error) {
	info, err := f.Info(ctx)
	if err != nil {
		return r, err
	}
	r.InFlight = info.InFlight
	r.Own = ownOf(&info)
	if dryRun {
		return r, nil
	}
	if _, err = f.op.changeTarget(ctx, t, metrics.ActionRemove); err != nil {
		return FlowRemoval{}, err
	}
	f.op.noteTarget(ctx, t, metrics.ActionRemove, "own", strings.Join(r.Own, ", "), "in_flight", r.InFlight)
	return r, nil
}

// ownOf names the settings and states that a flow has of its own.
func ownOf(info *FlowInfo) (own []string) {
	settings := info.Own
	settings.Pause, settings.Disabled = nil, nil
	for _, one := range []struct {
		name string
		has  bool
	}{{"settings", !settings.IsZero()}, {"pause", info.Own.Pause != nil}, {"disabled", info.Own.Disabled != nil}, {"hold", info.Downstream != nil}} {
		if one.has {
			own = append(own, one.name)
		}
	}
	return slices.Clip(own)
}
