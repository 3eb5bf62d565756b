package operator

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// part is a flow or a group of a bucket: the methods that both handles have.
type part struct {
	op     *Operator
	bucket string
	group  *string // nil of a flow that is named without its group
	flow   *string // nil of a group
}

// target finds the part in its bucket: no round trip, or one for a bucket that is not configured here.
func (p part) target(ctx context.Context) (target, error) {
	if p.flow == nil {
		return p.op.groupOf(ctx, p.bucket, *p.group)
	}
	return p.op.flowOf(ctx, p.bucket, p.group, *p.flow)
}

// Pause stops departures from the flow, or from all flows of the group, until Resume, as [Bucket.Pause] does for a bucket; other flows go on. It works
// also before there are jobs. One round trip; two for a bucket that is not configured here.
func (p part) Pause(ctx context.Context, reason string) error {
	t, err := p.target(ctx)
	if err != nil {
		return err
	}
	if err := checkReason(t.bucket, reason); err != nil {
		return err
	}
	change, err := p.op.changeTarget(ctx, t, metrics.ActionPause, jsonLine(codec.PauseNote{By: p.op.by, Reason: reason}))
	if err == nil {
		p.op.noteTarget(ctx, t, metrics.ActionPause, "reason", reason, "before", pauseBefore(&change.before), "after", "paused")
	}
	return err
}

// Resume lets the flow or group run again, at its pace, and reports whether it was paused. It takes as many round trips as Pause.
func (p part) Resume(ctx context.Context) (was bool, err error) {
	t, err := p.target(ctx)
	if err != nil {
		return false, err
	}
	change, err := p.op.changeTarget(ctx, t, metrics.ActionResume)
	if err == nil {
		p.op.noteTargetIf(ctx, change.isChanged, t, metrics.ActionResume, "before", pauseBefore(&change.before), "after", "running")
	}
	return change.before.Pause != nil, err
}

// Reset removes the settings that the flow or group has of its own; a pause stays. It reports whether there were any. It takes as many round trips as
// Pause.
func (p part) Reset(ctx context.Context) (had bool, err error) {
	t, err := p.target(ctx)
	if err != nil {
		return false, err
	}
	change, err := p.op.changeTarget(ctx, t, metrics.ActionReset)
	if err == nil {
		p.op.noteTargetIf(ctx, change.isChanged, t, metrics.ActionReset)
	}
	return !change.before.IsZero(), err
}

func pauseBefore(own *shaper.OwnFlow) string {
	if own.Pause == nil {
		return store.PauseText(0)
	}
	return store.PauseText(own.Pause.Since.UnixMicro())
}
