package operator

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// retriesInRun is how many jobs one run of retry_now.lua examines: 1 ms.
const retriesInRun = 500

// RetryNow makes all jobs of the flow due that wait for another attempt, and returns how many. They keep their attempts and are sent at the pace of
// the flow and its bucket, in the order in which they were due. A hold and an open breaker go on: see [Flow.Release]. Jobs with a delay that
// were never sent keep their time. One round trip for each 500 jobs that are due later.
//
// If ctx ends early, or Redis does not respond, RetryNow returns the count with the error, and the other jobs keep their time: call it again for
// these. A job that fails again meanwhile may become due once more.
func (f Flow) RetryNow(ctx context.Context) (moved int64, err error) {
	t, err := f.target(ctx)
	if err != nil {
		return 0, err
	}
	moved, err = f.op.retryNow(ctx, t.bucket, t.keys, t.name)
	if err == nil || moved > 0 {
		f.op.noteTarget(ctx, t, metrics.ActionRetryNow, "jobs", moved)
	}
	return moved, err
}

// RetryNow does what [Flow.RetryNow] does for all jobs of the bucket, flow by flow. It reads 500 flows in one round trip.
func (b Bucket) RetryNow(ctx context.Context) (moved int64, err error) {
	o, bucket := b.op, b.name
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil || moved > 0 {
			o.note(ctx, bucket, metrics.ActionRetryNow, "jobs", moved)
		}
	}()
	if k.Levels == codec.LevelsNone {
		return o.retryNow(ctx, bucket, k, "")
	}
	err = o.eachFlow(ctx, bucket, k, "", hasWaiting, func(flow string) error {
		n, err := o.retryNow(ctx, bucket, k, flow)
		moved += n
		return err
	})
	return moved, err
}

func (o *Operator) retryNow(ctx context.Context, bucket string, k store.Keys, flow string) (moved int64, err error) {
	keysOf := func(store.Keys) []string { return k.Of(lua.RetryNow, flow) }
	for from, skip := int64(0), int64(0); from >= 0; {
		if ctx.Err() != nil {
			return moved, fmt.Errorf("retry jobs of bucket %q: %w", bucket, context.Cause(ctx))
		}
		r, err := o.run(ctx, bucket, lua.RetryNow, keysOf, store.WakeChannel, k.Name, k.Levels, flow, from, skip, retriesInRun)
		if err != nil {
			return moved, fmt.Errorf("retry jobs now: %w", err)
		}
		n := r.Int()
		from, skip = r.Int(), r.Int()
		if r.Err() != nil {
			return moved, fmt.Errorf("bucket %q: script retry_now: %w", bucket, r.Err())
		}
		moved += n
	}
	return moved, nil
}
