package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// FlowNumbers are the plain numbers of a flow, or of all flows of a group, each described once: json is its member in the API. No script returns
// them: a page of flows is read by plain commands.
type FlowNumbers struct {
	// Its jobs in lists, and its delayed jobs and retries.
	Waiting int64 `json:"waiting"`

	// Jobs in flight of all its flows.
	InFlight int64 `json:"in_flight"`
}

// PartInfo is the state of a flow or a group.
type PartInfo struct {
	Bucket string
	FlowNumbers

	// Known says that Redis holds data of it: jobs, settings, a pause, charges of its budgets, departures that count for its quotas, or the rest of
	// its burst. Any name, even a mistyped one, names a flow or a group, but an unused one is not known.
	Known bool

	// Turn is when a claim examines it next, by the clock of Redis. It is zero if nothing waits, or if a claim found it paused or at its bound of
	// jobs in flight. While the group of a flow is held back, no claim examines the flow.
	Turn time.Time

	Own shaper.OwnFlow // its own settings, and its pause; a group never has a URL, headers or secrets

	Budgets []shaper.BudgetUse // its effective budgets, with what is charged to each; nil: none
	Quotas  []shaper.QuotaUse  // its effective quotas, with the departures that count for each; nil: none
}

// FlowInfo is a flow in numbers.
type FlowInfo struct {
	PartInfo
	Flow  string
	Group string // "" in a bucket without groups

	Downstream *shaper.Downstream // what responses to it have changed; nil: nothing. A hold in it may be over

	// Missing says that the flow lacks the own settings that it needs: its jobs are refused, and waiting ones stay. See [shaper.FlowSettings].
	Missing bool

	// Keeps says that the flow is disabled, and that its jobs are kept: see [shaper.KeepDisabled].
	Keeps bool
}

// Flow is the handle of a flow. A flow needs no jobs to exist. Its methods return [ErrNoFlows] if the bucket has no flows. Changes need an author: see
// [Operator.As].
type Flow struct{ part }

// Flow returns the handle of a flow of a bucket without groups. In a bucket with groups its methods return [ErrGroupNeeded].
func (b Bucket) Flow(name string) Flow {
	return Flow{part{op: b.op, bucket: b.name, flow: &name}}
}

// Flow returns the handle of a flow of the group. In a bucket without groups its methods return [ErrNoGroups].
func (g Group) Flow(name string) Flow {
	g.flow = &name
	return Flow(g)
}

// Set gives one flow settings of its own, which override the settings for all flows of its bucket, until they are cleared or [Flow.Reset]; what the
// patch does not name stays. They are effective from the next script on, also for a flow that has no jobs yet. It returns all settings that the
// flow then has of its own. A patch that does not fit, or that [Config.CheckFlow] refuses, is an [*InvalidChangeError]. One round trip; three with a
// rate or a burst, to check that they fit together (one more for a bucket that is not configured here).
func (f Flow) Set(ctx context.Context, patch FlowPatch) (shaper.OwnFlow, error) {
	if patch.IsZero() {
		return shaper.OwnFlow{}, &InvalidChangeError{f.bucket, errNoChange}
	}
	if err := f.op.checkDelivery(f.bucket, &patch); err != nil {
		return shaper.OwnFlow{}, err
	}
	t, err := f.target(ctx)
	if err != nil {
		return shaper.OwnFlow{}, err
	}
	return f.op.setTarget(ctx, t, &patch)
}

// checkDelivery checks a patch's settings for deliveries.
func (o *Operator) checkDelivery(bucket string, patch *FlowPatch) error {
	if o.checkFlow == nil {
		return nil
	}
	if err := o.checkFlow(bucket, patch.delivery()); err != nil {
		return &InvalidChangeError{bucket, err}
	}
	return nil
}

// Info returns the state of one flow: zeros if it has no jobs. One round trip, two if flows or groups have budgets or quotas; one more for a bucket
// that is not configured here.
func (f Flow) Info(ctx context.Context) (FlowInfo, error) {
	t, err := f.target(ctx)
	if err != nil {
		return FlowInfo{}, err
	}
	infos, err := f.op.flowInfos(ctx, t, []string{t.name})
	if err != nil {
		return FlowInfo{}, err
	}
	return infos[0], nil
}

// Flows returns flows of the bucket that have jobs or settings of their own, of all groups if there are any. They have no order. It returns about
// limit of them (clamped to 1 to 1000), or none, from the cursor of an earlier call on, "" at first; the cursor at the end is "". It may miss flows
// that appear or disappear meanwhile, and return some twice. Two or three round trips; one more for a bucket that is not configured here.
func (b Bucket) Flows(ctx context.Context, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	return b.op.flows(ctx, b.name, nil, cursor, limit)
}

// Flows returns flows of the group that have jobs or settings of their own, as [Bucket.Flows] does.
func (g Group) Flows(ctx context.Context, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	return g.op.flows(ctx, g.bucket, g.group, cursor, limit)
}

// flowsTarget returns a target for the flows of a bucket, or of one of its groups, and the pattern of their names in Redis.
func (o *Operator) flowsTarget(ctx context.Context, bucket string, group *string) (t target, match string, err error) {
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return t, "", err
	}
	of := group
	if k.Levels == codec.LevelsGroups && group == nil {
		of = new(string) // any: the flows of all groups are returned
	}
	if t, err = flowTarget(bucket, k, of, ""); err == nil && group != nil {
		match = globEscape(t.name) + "*"
	}
	return t, match, err
}

func (o *Operator) flows(ctx context.Context, bucket string, group *string, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	t, match, err := o.flowsTarget(ctx, bucket, group)
	if err != nil {
		return nil, "", err
	}
	names, next, err := o.list(ctx, t, match, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	infos, err = o.flowInfos(ctx, t, names)
	return infos, next, err
}

// globEscape returns a pattern of Redis that matches only the text.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

func (o *Operator) flowInfos(ctx context.Context, t target, names []string) ([]FlowInfo, error) {
	all, err := o.lookAt(ctx, t, names)
	if err != nil {
		return nil, err
	}
	infos := make([]FlowInfo, 0, len(all))
	for _, f := range all {
		info := FlowInfo{PartInfo: f.PartInfo, Flow: f.name, Downstream: f.downstream, Missing: f.mustExist && f.Own.IsZero(), Keeps: f.keeps && f.Own.Disabled != nil}
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
