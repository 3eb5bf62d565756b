package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// GroupInfo is a group in numbers.
type GroupInfo struct {
	PartInfo
	Group string
}

// Group reads a group of flows.
type Group struct {
	op     *Operator
	bucket string
	name   string
}

// Group names a group of the flows of a bucket.
func (b Bucket) Group(name string) Group { return Group{b.op, b.name, name} }

// GroupControl reads and changes a group of flows.
type GroupControl struct {
	Group
	by string
}

// Group names a group to change.
func (b BucketControl) Group(name string) GroupControl {
	return GroupControl{b.Bucket.Group(name), b.by}
}

func (g Group) target(ctx context.Context) (target, error) {
	return g.op.groupOf(ctx, g.bucket, g.name)
}

func (g GroupControl) control() control { return control{g.op, g.by} }

// Pause stops departures of all flows of a group until [GroupControl.Resume], as [FlowControl.Pause] does for a flow. One round trip; two for a
// bucket that is not configured here.
func (g GroupControl) Pause(ctx context.Context, reason string) error {
	t, err := g.target(ctx)
	if err != nil {
		return err
	}
	return g.control().pauseTarget(ctx, t, reason)
}

// Resume lets a group run again, at its pace, and reports whether it was paused. It takes as many round trips as Pause.
func (g GroupControl) Resume(ctx context.Context) (was bool, err error) {
	t, err := g.target(ctx)
	if err != nil {
		return false, err
	}
	return g.control().resumeTarget(ctx, t)
}

// Set gives one group settings of its own, over those of all groups of its bucket, as [FlowControl.Set] does for a flow: the settings in
// [shaper.GroupSettingNames].
func (g GroupControl) Set(ctx context.Context, patch FlowPatch) (shaper.OwnFlow, error) {
	bucket := g.bucket
	if patch.IsZero() {
		return shaper.OwnFlow{}, errNoChange(bucket)
	}
	for _, name := range shaper.FlowSettingNames() {
		if patch.given[name] && !slices.Contains(shaper.GroupSettingNames(), name) {
			return shaper.OwnFlow{}, &InvalidChangeError{bucket, fmt.Errorf("%s: is no setting of a group: give it to its flows", name)}
		}
	}
	t, err := g.target(ctx)
	if err != nil {
		return shaper.OwnFlow{}, err
	}
	return g.control().setTarget(ctx, t, &patch)
}

// Reset removes the settings of one group; a pause stays. It reports whether the group had settings. It takes as many round trips as Pause.
func (g GroupControl) Reset(ctx context.Context) (had bool, err error) {
	t, err := g.target(ctx)
	if err != nil {
		return false, err
	}
	return g.control().resetTarget(ctx, t)
}

// Info returns the state of one group: zeros if it has no jobs. One round trip, two if flows or groups have budgets; one more for a bucket that is
// not configured here.
func (g Group) Info(ctx context.Context) (GroupInfo, error) {
	t, err := g.target(ctx)
	if err != nil {
		return GroupInfo{}, err
	}
	infos, err := g.op.groupInfos(ctx, t, []string{g.name})
	if err != nil {
		return GroupInfo{}, err
	}
	return infos[0], nil
}

// Groups returns groups of a bucket that have jobs or settings of their own, as
// [Bucket.Flows] does flows.
func (b Bucket) Groups(ctx context.Context, cursor string, limit int) (infos []GroupInfo, next string, err error) {
	t, err := b.op.groupOf(ctx, b.name, "")
	if err != nil {
		return nil, "", err
	}
	names, next, err := b.op.list(ctx, t, "", cursor, limit)
	if err != nil {
		return nil, "", err
	}
	infos, err = b.op.groupInfos(ctx, t, names)
	return infos, next, err
}

func (o *Operator) groupInfos(ctx context.Context, t target, names []string) ([]GroupInfo, error) {
	all, err := o.lookAt(ctx, t, names)
	if err != nil {
		return nil, err
	}
	infos := make([]GroupInfo, 0, len(all))
	for _, one := range all {
		infos = append(infos, GroupInfo{one.PartInfo, one.name})
	}
	return infos, nil
}

// Purge drops all waiting jobs of all flows of a group, flow by flow, as [BucketControl.Purge] does for a bucket.
func (g GroupControl) Purge(ctx context.Context, options PurgeOptions) (Purged, error) {
	c, bucket, group := g.control(), g.bucket, g.name
	t, err := g.target(ctx)
	if err != nil {
		return Purged{}, err
	}
	sum, err := c.purgeFlows(ctx, bucket, t.keys, globEscape(codec.FlowPath(group, ""))+"*", options)
	if err == nil {
		c.note(ctx, bucket, metrics.ActionPurge, "group", group, "jobs", sum.Jobs, "keep_later", options.KeepLater)
	}
	return sum, err
}
