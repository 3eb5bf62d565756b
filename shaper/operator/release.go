package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// Release ends a hold and an open circuit breaker of one flow, and forgets its adaptive rate. Its waiting jobs go on at once, at the flow's pace. It
// reports whether there was something to release. Later responses may change the flow again. It takes as many round trips as Pause.
func (f Flow) Release(ctx context.Context) (was bool, err error) {
	t, err := f.target(ctx)
	if err != nil {
		return false, err
	}
	change, err := f.op.changeTarget(ctx, t, metrics.ActionRelease)
	if err == nil {
		f.op.noteTarget(ctx, t, metrics.ActionRelease, "before", change.said.String(), "after", "released")
	}
	return change.said.text != "", err
}

// Release ends a hold and an open circuit breaker of the bucket, and forgets its adaptive rate. Waiting jobs go on at once, at the bucket's pace. It
// reports whether there was something to release. It does not change flows: see [Bucket.ReleaseFlows]. Later responses may change the bucket
// again. One round trip.
func (b Bucket) Release(ctx context.Context) (was bool, err error) {
	o, bucket := b.op, b.name
	r, err := o.control(ctx, bucket, metrics.ActionRelease)
	if err != nil {
		return false, err
	}
	said := readReleased(r)
	if r.Err() == nil {
		o.note(ctx, bucket, metrics.ActionRelease, "before", said.String(), "after", "released")
	}
	return said.text != "", r.Err()
}

// ReleaseFlows releases every flow of the bucket, as [Flow.Release] does for one flow, and returns how many had something to release. It does
// not change the bucket itself: see [Bucket.Release].
//
// It reads 500 flows in one round trip, and takes another one for each flow with something to release. If ctx ends early, it returns the count with
// the error, and the later flows do not change: release them again then.
func (b Bucket) ReleaseFlows(ctx context.Context) (released int64, err error) {
	o, bucket := b.op, b.name
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return 0, err
	}
	if k.Levels == codec.LevelsNone {
		return 0, fmt.Errorf("bucket %q: %w", bucket, ErrNoFlows)
	}
	defer func() {
		if err == nil || released > 0 {
			o.note(ctx, bucket, metrics.ActionRelease, "flows", released)
		}
	}()
	hasDownstream := func(s codec.FlowState) bool { return s.Downstream != "" }
	err = o.eachFlow(ctx, bucket, k, "", hasDownstream, func(flow string) error {
		if ctx.Err() != nil {
			return fmt.Errorf("release flows of bucket %q: %w", bucket, context.Cause(ctx))
		}
		change, err := o.changeTarget(ctx, target{bucket: bucket, what: k.Levels, keys: k, name: flow}, metrics.ActionRelease)
		if change.said.text != "" {
			released++
		}
		return err
	})
	return released, err
}

// releasedScope is the downstream state of a scope before it was released.
type releasedScope struct {
	text   string // as scripts keep it; "" nothing
	offset int64  // of its clock
	at     int64  // when it was released, by the clock of Redis
}

// readReleased reads the reply of control.lua to a release.
func readReleased(r *lua.Reader) releasedScope {
	at, _ := r.Int(), r.Int()
	return releasedScope{at: at, text: r.Text(), offset: r.Int()}
}

// String describes what was released, for the log.
func (s releasedScope) String() string {
	if s.text == "" {
		return "nothing to release"
	}
	d := codec.ParseDownstream(s.text, s.offset, admission.Rate{})
	if d == nil {
		return "something of a newer program"
	}
	if text := d.Text(time.UnixMicro(s.at)); text != "" {
		return text
	}
	return fmt.Sprintf("%d failures in a row", d.Failures)
}

// Release ends a hold and an open circuit breaker of the pool, and forgets its adaptive rate, as [Bucket.Release] does for a bucket. One or
// two round trips.
func (p Pool) Release(ctx context.Context) (was bool, err error) {
	o, pool := p.op, p.name
	r, err := o.controlPool(ctx, pool, metrics.ActionRelease)
	if err != nil {
		return false, err
	}
	said := readReleased(r)
	if r.Err() != nil {
		return false, fmt.Errorf("pool %q: script control: %w", pool, r.Err())
	}
	o.notePool(ctx, pool, metrics.ActionRelease, "before", said.String(), "after", "released")
	return said.text != "", nil
}
