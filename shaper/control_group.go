package shaper

import (
	"context"
	"errors"
	"time"
)

var errNotYet = errors.New("shaper: not yet")

// GroupInfo is a group in numbers.
type GroupInfo struct {
	Bucket   string
	Group    string
	Waiting  int64 // of all its flows: in their lists, and for their time
	InFlight int64 // leased

	// Turn is when a claim looks at it next, by the clock of Redis; zero: nothing waits,
	// or a claim has seen that it is paused or has as many in flight as it may.
	Turn time.Time

	Own OwnFlow // its own settings, and its pause; never a URL, headers or secrets
}

// GroupSettingNames lists the settings that one group may have of its own: those of
// flows that are not for deliveries.
func GroupSettingNames() []FlowSetting {
	return []FlowSetting{FlowRate, FlowBurst, FlowCapacity, FlowMaxInFlight, FlowWeight}
}

// InGroup returns a Control whose methods on flows mean those of one group: PauseFlow,
// ResumeFlow, SetFlow, DeleteFlowSettings, Flow, Flows and PurgeFlow. In a bucket with
// groups these return [ErrGroupNeeded] without it, but for Flows, which lists those of
// all groups; in others [ErrNoGroups] with it.
func (c *Control) InGroup(group string) *Control {
	return &Control{store: c.store, by: c.by, group: &group}
}

// PauseGroup stops departures of all flows of a group until [Control.ResumeGroup], as
// [Control.PauseFlow] does those of a flow. One round trip.
func (c *Control) PauseGroup(ctx context.Context, bucket, group, reason string) error {
	return errNotYet
}

// ResumeGroup lets a group run again, at its pace, and reports whether it was paused. One
// round trip.
func (c *Control) ResumeGroup(ctx context.Context, bucket, group string) (was bool, err error) {
	return false, errNotYet
}

// SetGroup gives one group settings of its own, over those of all groups of its bucket, as
// [Control.SetFlow] does a flow: those of [GroupSettingNames].
func (c *Control) SetGroup(ctx context.Context, bucket, group string, patch FlowPatch) (OwnFlow, error) {
	return OwnFlow{}, errNotYet
}

// DeleteGroupSettings lets one group be as all of its bucket again; a pause stays. It
// reports whether the group had settings. One round trip.
func (c *Control) DeleteGroupSettings(ctx context.Context, bucket, group string) (had bool, err error) {
	return false, errNotYet
}

// Group returns what is known of one group: zeros of one that has no jobs.
func (c *Control) Group(ctx context.Context, bucket, group string) (GroupInfo, error) {
	return GroupInfo{}, errNotYet
}

// Groups returns groups of a bucket that have jobs or settings of their own, as
// [Control.Flows] does flows.
func (c *Control) Groups(ctx context.Context, bucket, cursor string, limit int) (infos []GroupInfo, next string, err error) {
	return nil, "", errNotYet
}

// PurgeGroup drops all jobs of all flows of a group that wait now, as [Control.Purge] does
// those of a bucket.
func (c *Control) PurgeGroup(ctx context.Context, bucket, group string, options PurgeOptions) (Purged, error) {
	return Purged{}, errNotYet
}
