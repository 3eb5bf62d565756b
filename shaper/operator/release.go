package operator

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// Release ends a hold and an open circuit breaker of one flow, and forgets its adaptive rate. Its waiting jobs go on at
// once, at the flow's pace. It reports whether there was something to release. Answers that come later may change the flow again. Its
// round trips are those of Pause.
func (f FlowControl) Release(ctx context.Context) (was bool, err error) {
	t, err := f.target(ctx)
	if err != nil {
		return false, err
	}
	c := f.control()
	change, err := c.changeTarget(ctx, t, metrics.ActionRelease)
	if err == nil {
		c.noteTarget(ctx, t, metrics.ActionRelease, "before", releasedText(change.said), "after", "released")
	}
	return change.said != "", err
}

// Release ends a hold and an open circuit breaker of the bucket, and forgets its adaptive rate. Waiting jobs go on at once, at the
// bucket's pace. It reports whether there was something to release. It leaves flows as they are: see [FlowControl.Release]. Answers that
// come later may change the bucket again. One round trip.
func (b BucketControl) Release(ctx context.Context) (was bool, err error) {
	c, bucket := b.control(), b.name
	r, err := c.control(ctx, bucket, metrics.ActionRelease)
	if err != nil {
		return false, err
	}
	_, _ = r.Int(), r.Int()
	said := r.Text()
	if r.Err() == nil {
		c.note(ctx, bucket, metrics.ActionRelease, "before", releasedText(said), "after", "released")
	}
	return said != "", r.Err()
}

// releasedText is what was released, for the log.
func releasedText(said string) string {
	if said == "" {
		return "nothing to release"
	}
	return said
}

// Release ends a hold and an open circuit breaker of the pool, and forgets its adaptive rate, as [BucketControl.Release] does those of a
// bucket. One or two round trips.
func (p PoolControl) Release(ctx context.Context) (was bool, err error) {
	c, pool := p.control(), p.name
	r, err := c.controlPool(ctx, pool, metrics.ActionRelease)
	if err != nil {
		return false, err
	}
	said := r.Text()
	if r.Err() != nil {
		return false, fmt.Errorf("pool %q: script control: %w", pool, r.Err())
	}
	c.notePool(ctx, pool, metrics.ActionRelease, "before", releasedText(said), "after", "released")
	return said != "", nil
}
