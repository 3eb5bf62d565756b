package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Replies of inspect_result.lua.
const (
	resultNotEnded = iota
	resultNotKept
	resultKept
)

// Result returns how a job ended. Its errors are [shaper.ErrNotFound] and, with the job's state in the result, [shaper.ErrNotEnded] and
// [shaper.ErrNoResult].
func (s *Store) Result(ctx context.Context, bucket, id string) (shaper.JobResult, error) {
	return s.result(ctx, bucket, id, false)
}

// AwaitedResult is Result for a process that waits for it. If the bucket keeps no results, Redis drops this one soon after.
func (s *Store) AwaitedResult(ctx context.Context, bucket, id string) (shaper.JobResult, error) {
	return s.result(ctx, bucket, id, true)
}

// endedAtOnce is the number of jobs that one script call checks, which takes it 0.5 ms.
const endedAtOnce = 500

// Ended calls ended for each of these jobs that may have ended; [Store.AwaitedResult] returns the result. ids are by bucket. Up to 128 scripts
// share a round trip, in a cluster one per node. A job without a reply counts as not ended.
func (s *Store) Ended(ctx context.Context, ids map[string][]string, ended func(bucket, id string)) {
	type part struct {
		bucket string
		ids    []string
	}
	var parts []part
	var calls []lua.Call
	for bucket, all := range ids {
		b, err := s.Readable(ctx, bucket)
		if err != nil {
			continue
		}
		for some := range slices.Chunk(all, endedAtOnce) {
			args := make([]any, len(some))
			for i, id := range some {
				args[i] = id
			}
			calls = append(calls, lua.Call{Script: lua.Ended, Keys: b.Keys.Of(lua.Ended), Args: args})
			parts = append(parts, part{bucket, some})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	for len(calls) > 0 {
		n := min(len(calls), sharedAtMost)
		for i, result := range lua.RunAll(ctx, s.Redis, calls[:n]) {
			said, err := lua.IntegersFor(result.Reply, len(parts[i].ids))
			if result.Err != nil || err != nil {
				continue
			}
			for at, id := range parts[i].ids {
				if said[at] == 1 {
					ended(parts[i].bucket, id)
				}
			}
		}
		calls, parts = calls[n:], parts[n:]
	}
}

func (s *Store) result(ctx context.Context, bucket, id string, waited bool) (shaper.JobResult, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	none := shaper.JobResult{ID: id, Bucket: bucket}
	b, err := s.Readable(ctx, bucket)
	if err != nil {
		return none, err
	}
	reply, err := s.Run(ctx, lua.InspectResult, b.Keys.Of(lua.InspectResult), id, BoolArg(waited))
	if err != nil {
		return none, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	r := lua.NewReader(reply)
	if r.Left() == 0 && r.Err() == nil {
		return none, fmt.Errorf("%w: %q in bucket %q", shaper.ErrNotFound, id, bucket)
	}
	none.State = codec.StateOf(r.Int())
	kept := r.Int()
	switch {
	case r.Err() != nil:
		return none, fmt.Errorf("bucket %q: script inspect_result: %w", bucket, r.Err())
	case kept == resultNotEnded:
		return none, fmt.Errorf("%w: %q in bucket %q is %s", shaper.ErrNotEnded, id, bucket, none.State)
	case kept == resultNotKept:
		return none, fmt.Errorf("%w: %q in bucket %q is %s", shaper.ErrNoResult, id, bucket, none.State)
	}
	text := r.Text()
	if r.Err() != nil {
		return none, fmt.Errorf("bucket %q: script inspect_result: %w", bucket, r.Err())
	}
	result, err := codec.OpenResult(bucket, id, text)
	if err == nil && isOfEarlier(&result, none.State) {
		return none, fmt.Errorf("%w: %q in bucket %q is %s", shaper.ErrNoResult, id, bucket, none.State)
	}
	return result, err
}

// isOfEarlier reports whether a result belongs to an earlier job of the same id, which only ids of the proxy can have. The last job has then
// ended in a state without a result of its own.
func isOfEarlier(result *shaper.JobResult, state shaper.State) bool {
	return strings.HasPrefix(result.ID, shaper.ProxyID) && result.State != state && (state == shaper.StateDead || state == shaper.StateCancelled)
}
