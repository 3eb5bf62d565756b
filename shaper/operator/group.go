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

// Group is the handle of a group of flows. Its methods return [ErrNoGroups] if the bucket has no groups. Changes need an author: see [Operator.As].
type Group struct{ part }

// Group returns the handle of a group of flows of the bucket.
func (b Bucket) Group(name string) Group {
	return Group{part{op: b.op, bucket: b.name, group: &name}}
}

// Set gives one group settings of its own, which override the settings for all groups of its bucket, as [Flow.Set] does for a flow. They
// are the settings in [shaper.GroupSettingNames].
func (g Group) Set(ctx context.Context, patch FlowPatch) (shaper.OwnFlow, error) {
	bucket := g.bucket
	if patch.IsZero() {
		return shaper.OwnFlow{}, &InvalidChangeError{bucket, errNoChange}
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
	return g.op.setTarget(ctx, t, &patch)
}

// Info returns the state of one group: zeros if it has no jobs. One round trip, two if flows or groups have budgets or quotas; one more for a bucket that is
// not configured here.
func (g Group) Info(ctx context.Context) (GroupInfo, error) {
	t, err := g.target(ctx)
	if err != nil {
		return GroupInfo{}, err
	}
	infos, err := g.op.groupInfos(ctx, t, []string{t.name})
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

// Purge drops all waiting jobs of all flows of a group, flow by flow, as [Bucket.Purge] does for a bucket.
func (g Group) Purge(ctx context.Context, options PurgeOptions) (Purged, error) {
	o, bucket, group := g.op, g.bucket, *g.group
	t, err := g.target(ctx)
	if err != nil {
		return Purged{}, err
	}
	sum, err := o.purgeFlows(ctx, bucket, t.keys, globEscape(codec.FlowPath(group, ""))+"*", options)
	if err == nil {
		o.note(ctx, bucket, metrics.ActionPurge, "group", group, "jobs", sum.Jobs, "keep_later", options.KeepLater)
	}
	return sum, err
}
