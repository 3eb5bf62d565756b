package operator

import (
	"context"
	"slices"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
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
// until all are moved or one does not fit. It reads all dead letters of the bucket: three round trips for 200 of them, and two more for
// those that it moves.
func (f FlowControl) RedriveDisabled(ctx context.Context) (Redriven, error) {
	var sum Redriven
	t, err := f.target(ctx)
	if err != nil {
		return sum, err
	}
	b, err := f.op.store.Bucket(f.bucket)
	if err != nil {
		return sum, err
	}
	// They are read from the newest on, as those that are moved leave no gap in front of what was not read then.
	var found []string
	for offset := 0; ; offset += maxRedrive {
		infos, err := Bucket{f.op, f.bucket}.Dead().List(ctx, offset, maxRedrive)
		if err != nil {
			return sum, err
		}
		if len(infos) == 0 {
			break
		}
		for i := range infos {
			if f.wasEmptied(b, t, &infos[i]) {
				found = append(found, infos[i].ID)
			}
		}
	}
	slices.Reverse(found)
	for ids := range slices.Chunk(found, maxRedrive) {
		part, err := f.op.redrive(ctx, f.bucket, ids)
		sum.add(part)
		if err != nil || part.Full+part.FlowFull+part.GroupFull > 0 {
			break
		}
	}
	if sum.Moved > 0 {
		f.control().noteTarget(ctx, t, metrics.ActionRedrive, "jobs", sum.Moved)
	}
	return sum, err
}

// wasEmptied reports whether a dead letter is one of the flow, that it has because it was disabled.
func (f FlowControl) wasEmptied(b *store.Bucket, t target, info *shaper.JobInfo) bool {
	return info.Last.Cause == shaper.CauseFlowDisabled && codec.PathOf(b.Levels(), info.Group, info.Flow) == t.name
}
