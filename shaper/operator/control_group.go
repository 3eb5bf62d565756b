package operator

import (
	"context"
	"fmt"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"slices"
	"time"
)

// GroupInfo is a group in numbers.
type GroupInfo struct {
	Bucket   string
	Group    string
	Waiting  int64 // of all its flows: in their lists, and for their time
	InFlight int64 // leased
	Known    bool  // as of a [FlowInfo]

	// Turn is when a claim looks at it next, by the clock of Redis; zero: nothing waits,
	// or a claim has seen that it is paused or has as many in flight as it may.
	Turn time.Time

	Own shaper.OwnFlow // its own settings, and its pause; never a URL, headers or secrets
}

// InGroup returns a Control whose methods on flows mean those of one group: PauseFlow,
// ResumeFlow, SetFlow, DeleteFlowSettings, Flow, Flows and PurgeFlow. In a bucket with
// groups these return [ErrGroupNeeded] without it, but for Flows, which lists those of
// all groups; in others [ErrNoGroups] with it.
func (c *Control) InGroup(group string) *Control {
	return &Control{store: c.store, checkFlow: c.checkFlow, by: c.by, group: &group}
}

// PauseGroup stops departures of all flows of a group until [Control.ResumeGroup], as
// [Control.PauseFlow] does those of a flow. One round trip; two of a bucket that is not
// configured here.
func (c *Control) PauseGroup(ctx context.Context, bucket, group, reason string) error {
	t, err := c.groupOf(ctx, bucket, group)
	if err != nil {
		return err
	}
	return c.pauseTarget(ctx, t, reason)
}

// ResumeGroup lets a group run again, at its pace, and reports whether it was paused. Its
// round trips are those of PauseGroup.
func (c *Control) ResumeGroup(ctx context.Context, bucket, group string) (was bool, err error) {
	t, err := c.groupOf(ctx, bucket, group)
	if err != nil {
		return false, err
	}
	return c.resumeTarget(ctx, t)
}

// SetGroup gives one group settings of its own, over those of all groups of its bucket, as
// [Control.SetFlow] does a flow: those of [shaper.GroupSettingNames].
func (c *Control) SetGroup(ctx context.Context, bucket, group string, patch FlowPatch) (shaper.OwnFlow, error) {
	if patch.IsZero() {
		return shaper.OwnFlow{}, errNoChange(bucket)
	}
	for _, name := range shaper.FlowSettingNames() {
		if patch.given[name] && !slices.Contains(shaper.GroupSettingNames(), name) {
			return shaper.OwnFlow{}, &InvalidChangeError{bucket, fmt.Errorf("%s: is no setting of a group: give it to its flows", name)}
		}
	}
	t, err := c.groupOf(ctx, bucket, group)
	if err != nil {
		return shaper.OwnFlow{}, err
	}
	return c.setTarget(ctx, t, &patch)
}

// DeleteGroupSettings lets one group be as all of its bucket again; a pause stays. It
// reports whether the group had settings. Its round trips are those of PauseGroup.
func (c *Control) DeleteGroupSettings(ctx context.Context, bucket, group string) (had bool, err error) {
	t, err := c.groupOf(ctx, bucket, group)
	if err != nil {
		return false, err
	}
	return c.resetTarget(ctx, t)
}

// Group returns what is known of one group: zeros of one that has no jobs. One round trip;
// two of a bucket that is not configured here.
func (c *Control) Group(ctx context.Context, bucket, group string) (GroupInfo, error) {
	t, err := c.groupOf(ctx, bucket, group)
	if err != nil {
		return GroupInfo{}, err
	}
	infos, err := c.groupInfos(ctx, t, []string{group})
	if err != nil {
		return GroupInfo{}, err
	}
	return infos[0], nil
}

// Groups returns groups of a bucket that have jobs or settings of their own, as
// [Control.Flows] does flows.
func (c *Control) Groups(ctx context.Context, bucket, cursor string, limit int) (infos []GroupInfo, next string, err error) {
	t, err := c.groupOf(ctx, bucket, "")
	if err != nil {
		return nil, "", err
	}
	names, next, err := c.list(ctx, t, "", cursor, limit)
	if err != nil {
		return nil, "", err
	}
	infos, err = c.groupInfos(ctx, t, names)
	return infos, next, err
}

func (c *Control) groupInfos(ctx context.Context, t target, names []string) ([]GroupInfo, error) {
	all, err := c.lookAt(ctx, t, names)
	if err != nil {
		return nil, err
	}
	infos := make([]GroupInfo, 0, len(all))
	for _, g := range all {
		infos = append(infos, GroupInfo{Bucket: t.bucket, Group: g.name, Waiting: g.Waiting(), InFlight: g.InFlight, Known: g.known, Turn: g.turn, Own: g.own})
	}
	return infos, nil
}

// PurgeGroup drops all jobs of all flows of a group that wait now, flow by flow, as
// [Control.Purge] does those of a bucket.
func (c *Control) PurgeGroup(ctx context.Context, bucket, group string, options PurgeOptions) (Purged, error) {
	t, err := c.groupOf(ctx, bucket, group)
	if err != nil {
		return Purged{}, err
	}
	sum, err := c.purgeFlows(ctx, bucket, t.keys, globEscape(codec.FlowPath(group, ""))+"*", options)
	if err == nil {
		c.note(ctx, bucket, metrics.ActionPurge, "group", group, "jobs", sum.Jobs, "keep_later", options.KeepLater)
	}
	return sum, err
}
