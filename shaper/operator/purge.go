package operator

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	purgeTries = 3   // of a chunk whose reply is lost
	flowScan   = 500 // flows that one round trip reads
)

// PurgeOptions say which jobs a purge keeps.
type PurgeOptions struct {
	KeepLater bool // delayed jobs and retries that wait for their time
}

// Purged is the result of a purge.
type Purged struct {
	Jobs int64 // that were dropped
	Left int64 // entries that are moved out and not removed yet, 0 when the purge is done
}

// Purge drops all waiting jobs of a bucket, for good. None of them departs after the first round trip. Jobs in flight and later jobs are not touched.
// Purge removes 200 at a time, in a round trip each; until then they count against the capacity. Redis remembers purged jobs as cancelled, as long as
// any settled job.
//
// If ctx or this process ends before all are removed, the sweeper of a dispatcher removes the rest; the result, with the error, then says how far the
// purge came. If another purge of the bucket is under way, it is finished first.
//
// In a bucket with flows it purges one flow after the other, in a round trip each at least. The flow is purged at one instant, the bucket is not.
// Jobs that arrive in a flow before the purge does are dropped too; a new flow may keep its jobs. If the purge ends early, the sweeper finishes the
// flow that was under way, and the later ones keep their jobs: purge again then.
func (b Bucket) Purge(ctx context.Context, options PurgeOptions) (Purged, error) {
	o, bucket := b.op, b.name
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return Purged{}, err
	}
	var sum Purged
	if k.Levels == codec.LevelsNone {
		sum, err = o.purge(ctx, bucket, k, "", options)
	} else {
		sum, err = o.purgeFlows(ctx, bucket, k, "", options)
	}
	if err == nil {
		o.note(ctx, bucket, metrics.ActionPurge, "jobs", sum.Jobs, "keep_later", options.KeepLater)
	}
	return sum, err
}

// Purge drops all waiting jobs of a flow, as [Bucket.Purge] does for a bucket.
func (f Flow) Purge(ctx context.Context, options PurgeOptions) (Purged, error) {
	t, err := f.target(ctx)
	if err != nil {
		return Purged{}, err
	}
	sum, err := f.op.purge(ctx, f.bucket, t.keys, t.name, options)
	if err == nil {
		f.op.noteTarget(ctx, t, metrics.ActionPurge, "jobs", sum.Jobs, "keep_later", options.KeepLater)
	}
	return sum, err
}

// purgeFlows purges every flow of a bucket that has waiting jobs, and whose name
// in Redis matches.
func (o *Operator) purgeFlows(ctx context.Context, bucket string, k store.Keys, match string, options PurgeOptions) (Purged, error) {
	var sum Purged
	err := o.eachFlow(ctx, bucket, k, match, hasWaiting, func(flow string) error {
		one, err := o.purge(ctx, bucket, k, flow, options)
		sum.Jobs, sum.Left = sum.Jobs+one.Jobs, one.Left
		return err
	})
	return sum, err
}

func hasWaiting(s codec.FlowState) bool { return s.Waiting() > 0 }

// eachFlow calls do with the name in Redis of each flow of a bucket that has the wanted state, and whose name matches, until do fails. It reads 500
// flows in one round trip.
func (o *Operator) eachFlow(ctx context.Context, bucket string, k store.Keys, match string, wanted func(codec.FlowState) bool, do func(flow string) error) error {
	for cursor := uint64(0); ; {
		names, next, err := o.scanFlows(ctx, bucket, k, match, cursor, wanted)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// scanFlows returns some of a bucket's flows with the wanted state.
func (o *Operator) scanFlows(ctx context.Context, bucket string, k store.Keys, match string, cursor uint64, wanted func(codec.FlowState) bool) (names []string, next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	states, next, err := o.store.Redis.HScan(ctx, k.Flows(), cursor, match, flowScan).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("bucket %q: list its flows: %w", bucket, err)
	}
	for i := 0; i+1 < len(states); i += 2 {
		if wanted(codec.ParseFlowState(states[i+1])) {
			names = append(names, states[i])
		}
	}
	return names, next, nil
}

// purge purges one flow; without flows, the bucket.
func (o *Operator) purge(ctx context.Context, bucket string, k store.Keys, flow string, options PurgeOptions) (Purged, error) {
	var sum Purged
	keysOf := func(store.Keys) []string { return k.Of(lua.Purge, flow) }
	id := store.ShortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	for lost := 0; ; {
		if err := ctx.Err(); err != nil {
			return sum, fmt.Errorf("purge bucket %q: %w", bucket, context.Cause(ctx))
		}
		r, err := o.run(ctx, bucket, lua.Purge, keysOf, id, store.BoolArg(options.KeepLater), store.PurgeBatch, store.ScriptBytes, k.Levels, flow)
		if err != nil {
			if lost++; redisconn.ReplyLost(err) && lost < purgeTries {
				continue // safe: by its id it is the same purge
			}
			return sum, fmt.Errorf("purge: %w", err)
		}
		lost = 0
		own := r.Int() == 1
		_, done, left := r.Int(), r.Int(), r.Int()
		if r.Err() != nil {
			return sum, fmt.Errorf("bucket %q: script purge: %w", bucket, r.Err())
		}
		if !own {
			continue // another one's: ours begins when it is done
		}
		if sum = (Purged{done, left}); left == 0 {
			return sum, nil
		}
	}
}
