package operator

import (
	"context"
	"errors"
	"fmt"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"strings"
	"time"
)

// FlowInfo is a flow in numbers.
type FlowInfo struct {
	Bucket   string
	Flow     string
	Group    string // "" in a bucket without groups
	Waiting  int64  // in its lists, and for their time
	InFlight int64  // leased

	// Known says that Redis holds something of it: jobs, settings, a pause, or what is
	// left of its burst. Any name is that of a flow, also a mistyped one, which is not known.
	Known bool

	// Turn is when a claim looks at it next, by the clock of Redis; zero: nothing waits,
	// or a claim has seen that it is paused or has as many in flight as it may. While its
	// group is held back, no claim looks at it.
	Turn time.Time

	Own shaper.OwnFlow // its own settings, and its pause
}

// PauseFlow stops departures from one flow until [Control.ResumeFlow], as
// [Control.Pause] does those from a bucket; the other flows go on. It may be one that
// has no jobs yet. One round trip; two of a bucket that is not configured here.
func (c *Control) PauseFlow(ctx context.Context, bucket, flow, reason string) error {
	t, err := c.flowOf(ctx, bucket, flow)
	if err != nil {
		return err
	}
	return c.pauseTarget(ctx, t, reason)
}

// ResumeFlow lets a flow run again, at its pace, and reports whether it was paused. Its
// round trips are those of PauseFlow.
func (c *Control) ResumeFlow(ctx context.Context, bucket, flow string) (was bool, err error) {
	t, err := c.flowOf(ctx, bucket, flow)
	if err != nil {
		return false, err
	}
	return c.resumeTarget(ctx, t)
}

// SetFlow gives one flow settings of its own, over those of all flows of its bucket,
// until they are cleared or [Control.DeleteFlowSettings]; what the patch does not name
// stays. They hold from the next script on, also for a flow that has no jobs yet. It
// returns all that the flow has of its own then. A patch that does not fit, or that
// [Config.CheckFlow] refuses, is an [*InvalidChangeError]. One round trip; with a rate or a burst three, to see whether
// they go together (one more of a bucket that is not configured here).
func (c *Control) SetFlow(ctx context.Context, bucket, flow string, patch FlowPatch) (shaper.OwnFlow, error) {
	if patch.IsZero() {
		return shaper.OwnFlow{}, errNoChange(bucket)
	}
	if err := c.checkDelivery(bucket, &patch); err != nil {
		return shaper.OwnFlow{}, err
	}
	t, err := c.flowOf(ctx, bucket, flow)
	if err != nil {
		return shaper.OwnFlow{}, err
	}
	return c.setTarget(ctx, t, &patch)
}

// checkDelivery asks about what a patch gives a flow for its deliveries.
func (c *Control) checkDelivery(bucket string, patch *FlowPatch) error {
	if c.checkFlow == nil {
		return nil
	}
	if err := c.checkFlow(bucket, patch.delivery()); err != nil {
		return &InvalidChangeError{bucket, err}
	}
	return nil
}

func errNoChange(bucket string) error {
	return &InvalidChangeError{bucket, errors.New("nothing is changed: name a setting and its value")}
}

// DeleteFlowSettings lets one flow be as all of its bucket again; a pause stays. It
// reports whether the flow had settings. Its round trips are those of PauseFlow.
func (c *Control) DeleteFlowSettings(ctx context.Context, bucket, flow string) (had bool, err error) {
	t, err := c.flowOf(ctx, bucket, flow)
	if err != nil {
		return false, err
	}
	return c.resetTarget(ctx, t)
}

// Flow returns what is known of one flow: zeros of one that has no jobs. One round trip;
// two of a bucket that is not configured here.
func (c *Control) Flow(ctx context.Context, bucket, flow string) (FlowInfo, error) {
	t, err := c.flowOf(ctx, bucket, flow)
	if err != nil {
		return FlowInfo{}, err
	}
	infos, err := c.flowInfos(ctx, t, []string{t.name})
	if err != nil {
		return FlowInfo{}, err
	}
	return infos[0], nil
}

// Flows returns flows of a bucket that have jobs or settings of their own, in no order,
// about limit of them (1 to 1000; others are cut to that), or none, from a cursor on
// that an earlier call has returned, "" at first; the cursor in the end is "". Flows that
// come or go meanwhile may be missing, and some may be told twice. Two or three round
// trips; one more of a bucket that is not configured here.
func (c *Control) Flows(ctx context.Context, bucket, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	k, err := c.keysOf(ctx, bucket)
	if err != nil {
		return nil, "", err
	}
	group := c.group
	if k.Levels == codec.LevelsGroups && group == nil {
		group = new(string) // any: the flows of all are told
	}
	t, err := flowTarget(bucket, k, group, "")
	if err != nil {
		return nil, "", err
	}
	match := ""
	if c.group != nil {
		match = globEscape(t.name) + "*"
	}
	names, next, err := c.list(ctx, t, match, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	infos, err = c.flowInfos(ctx, t, names)
	return infos, next, err
}

// globEscape makes a text one that matches itself in a pattern of Redis.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

func (c *Control) flowInfos(ctx context.Context, t target, names []string) ([]FlowInfo, error) {
	all, err := c.lookAt(ctx, t, names)
	if err != nil {
		return nil, err
	}
	infos := make([]FlowInfo, 0, len(all))
	for _, f := range all {
		info := FlowInfo{Bucket: t.bucket, Flow: f.name, Waiting: f.Waiting(), InFlight: f.InFlight, Known: f.known, Turn: f.turn, Own: f.own}
		if t.what == targetFlowInGroup {
			var ok bool
			if info.Group, info.Flow, ok = codec.SplitPath(f.name); !ok {
				return nil, fmt.Errorf("bucket %q: flow %q in Redis is none of a group", t.bucket, f.name)
			}
		}
		infos = append(infos, info)
	}
	return infos, nil
}
