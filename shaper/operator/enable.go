package operator

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// Enable lets a disabled flow take and send jobs again, at its pace, and reports whether it was disabled. A pause stays. Its
// dead letters stay too: see [FlowControl.RedriveDisabled]. Its round trips are those of Pause.
func (f FlowControl) Enable(ctx context.Context) (was bool, err error) {
	t, err := f.target(ctx)
	if err != nil {
		return false, err
	}
	c := f.control()
	change, err := c.changeTarget(ctx, t, metrics.ActionEnable)
	if err != nil {
		return false, err
	}
	before := "enabled"
	if change.before.Disabled != nil {
		before = change.before.Disabled.String()
	}
	c.noteTarget(ctx, t, metrics.ActionEnable, "before", before, "after", "enabled")
	return change.before.Disabled != nil, nil
}

// RedriveDisabled redrives the dead letters that the flow has because it was disabled ([shaper.CauseFlowDisabled]), the oldest first,
// until all are moved or no more can be moved for now: see [DeadControl.RedriveFound].
func (f FlowControl) RedriveDisabled(ctx context.Context) (Redriven, error) {
	var sum Redriven
	if _, err := f.target(ctx); err != nil {
		return sum, err
	}
	dead := f.op.As(f.by).Bucket(f.bucket).Dead()
	for cursor := ""; ; {
		change, err := dead.RedriveFound(ctx, DeadFilter{Cause: shaper.CauseFlowDisabled, Flow: &f.name, Group: f.group}, cursor, false)
		sum.Add(change.Redriven)
		if cursor = change.Next; err != nil || cursor == "" || change.Waiting {
			return sum, err
		}
	}
}
