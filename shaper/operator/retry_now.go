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
// the flow and its bucket, in the order in which they were due. A hold and an open breaker go on: see [FlowControl.Release]. Jobs with a delay that
// were never sent keep their time. One round trip for each 500 jobs that are due later.
//
// If ctx ends early, or Redis does not respond, RetryNow returns the count with the error, and the other jobs keep their time: call it again for
// these. A job that fails again meanwhile may become due once more.
func (f FlowControl) RetryNow(ctx context.Context) (moved int64, err error) {
	t, err := f.target(ctx)
	if err != nil {
		return 0, err
	}
	c := f.control()
	moved, err = c.retryNow(ctx, t.bucket, t.keys, t.name)
	if err == nil || moved > 0 {
		c.noteTarget(ctx, t, metrics.ActionRetryNow, "jobs", moved)
	}
	return moved, err
}

// RetryNow does what [FlowControl.RetryNow] does for all jobs of the bucket, flow by flow. It reads 500 flows in one round trip.
func (b BucketControl) RetryNow(ctx context.Context) (moved int64, err error) {
	c, bucket := b.control(), b.name
	k, err := c.keysOf(ctx, bucket)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil || moved > 0 {
			c.note(ctx, bucket, metrics.ActionRetryNow, "jobs", moved)
		}
	}()
	if k.Levels == codec.LevelsNone {
		return c.retryNow(ctx, bucket, k, "")
	}
	for cursor := uint64(0); ; {
		names, next, err := c.scanFlows(ctx, bucket, k, "", cursor, func(s codec.FlowState) bool { return s.Waiting() > 0 })
		if err != nil {
			return moved, err
		}
		for _, name := range names {
			n, err := c.retryNow(ctx, bucket, k, name)
			if moved += n; err != nil {
				return moved, err
			}
		}
		if cursor = next; cursor == 0 {
			return moved, nil
		}
	}
}

func (c control) retryNow(ctx context.Context, bucket string, k store.Keys, flow string) (moved int64, err error) {
	keysOf := func(store.Keys) []string { return k.Of(lua.RetryNow, flow) }
	for from, skip := int64(0), int64(0); from >= 0; {
		if ctx.Err() != nil {
			return moved, fmt.Errorf("retry jobs of bucket %q: %w", bucket, context.Cause(ctx))
		}
		r, err := c.run(ctx, bucket, lua.RetryNow, keysOf, store.WakeChannel, k.Name, k.Levels, flow, from, skip, retriesInRun)
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
