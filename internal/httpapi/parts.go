package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

const partsAtOnce = 100 // flows or groups of a list that names no limit

// partControl is a flow or a group to change: an [operator.Flow] or an [operator.Group].
type partControl interface {
	Pause(ctx context.Context, reason string) error
	Resume(ctx context.Context) (was bool, err error)
	Set(ctx context.Context, patch operator.FlowPatch) (shaper.OwnFlow, error)
	Reset(ctx context.Context) (had bool, err error)
	Purge(ctx context.Context, options operator.PurgeOptions) (operator.Purged, error)
}

// viewOf is the pointer of a flow or group as JSON shows it.
type viewOf[V any] interface {
	*V
	opsview.View
}

// parts serves the flows of buckets, or their groups: N names one, V shows it, and S its own settings.
type parts[N PartName, V any, P viewOf[V], S any] struct {
	*ops
	kind     string               // "flow" or "group"
	settings []shaper.FlowSetting // that one may have of its own

	control func(b operator.Bucket, of N) partControl
	show    func(r *http.Request, of *N) (*V, error)
	own     func(view *V) *S
}

func (o *ops) flowRoutes() []route {
	p := &parts[FlowName, opsview.Flow, *opsview.Flow, opsview.Settings]{
		ops: o, kind: "flow", settings: shaper.FlowSettingNames(), show: o.showFlow,
		control: func(b operator.Bucket, of FlowName) partControl { return flowControl(b, of) },
		own:     func(view *opsview.Flow) *opsview.Settings { return &view.Settings },
	}
	one := append(p.routes(FlowOperations),
		bind(o.fault, ReleaseFlow, o.releaseFlow),
		bind(o.fault, EnableFlow, o.enableFlow),
		bind(o.fault, RemoveFlow, o.removeFlow),
	)
	return append(one,
		few(o.lists, bind(o.fault, ListFlows, o.listFlows)),
		few(o.lists, bind(o.fault, PutFlows, func(r *http.Request, in *FlowLines) (*FlowsPut, error) {
			return o.putFlows(r, in, p.patchMember, func() operator.FlowPatch { return p.newPatch(true) })
		})),
	)
}

func (o *ops) groupRoutes() []route {
	p := &parts[GroupName, opsview.Group, *opsview.Group, shaper.OwnBounds]{
		ops: o, kind: "group", settings: shaper.GroupSettingNames(), show: o.showGroup,
		control: func(b operator.Bucket, of GroupName) partControl { return b.Group(of.Group) },
		own:     func(view *opsview.Group) *shaper.OwnBounds { return &view.Settings },
	}
	return append(p.routes(GroupOperations), few(o.lists, bind(o.fault, ListGroups, o.listGroups)))
}

// routes returns the routes that flows and groups have in common.
func (p *parts[N, V, P, S]) routes(ops PartOperations[N, V]) []route {
	return []route{
		bind(p.fault, ops.Show, p.show),
		bind(p.fault, ops.Set, p.set),
		bind(p.fault, ops.Pause, p.pause),
		bind(p.fault, ops.Resume, p.resume),
		bind(p.fault, ops.Purge, p.purge),
		bind(p.fault, ops.Replace, p.replace),
		bind(p.fault, ops.Reset, p.reset),
	}
}

func (o *ops) listFlows(r *http.Request, in *FlowQuery) (*FlowList, error) {
	filter := operator.FlowFilter{Group: in.Group, Match: in.Q, Failing: in.Failing, Order: operator.FlowOrder(in.Sort)}
	var infos []operator.FlowInfo
	var err error
	answer := &FlowList{}
	switch b := o.buckets.Bucket(in.Bucket); {
	case in.Look == 0:
		infos, answer.Next, err = b.FindFlows(r.Context(), filter, in.Cursor, in.limit())
	case filter.Order != operator.ByWaiting || in.Failing || in.Q != "":
		err = invalid([]*shaper.FieldError{{Field: "look", Reason: "goes with sort=waiting, and without failing and q"}})
	default:
		infos, answer.Looked, answer.Next, err = b.LargestFlows(r.Context(), in.Group, in.Cursor, in.Look, in.limit())
	}
	answer.Flows = make([]*opsview.Flow, len(infos))
	for i := range infos {
		answer.Flows[i] = opsview.FlowOf(&infos[i])
	}
	return answer, err
}

func (o *ops) listGroups(r *http.Request, in *GroupQuery) (*GroupList, error) {
	infos, next, err := o.buckets.Bucket(in.Bucket).Groups(r.Context(), in.Cursor, in.limit())
	answer := &GroupList{make([]*opsview.Group, len(infos)), next}
	for i := range infos {
		answer.Groups[i] = opsview.GroupOf(&infos[i])
	}
	return answer, err
}

func (p *PartPage) limit() int {
	if p.Limit == 0 {
		return partsAtOnce
	}
	return p.Limit
}

// flowControl returns the control of a flow, of a bucket or of a group in it.
func flowControl(b operator.Bucket, of FlowName) operator.Flow {
	if of.Group != nil {
		return b.Group(*of.Group).Flow(of.Flow)
	}
	return b.Flow(of.Flow)
}

func (o *ops) showFlow(r *http.Request, of *FlowName) (*opsview.Flow, error) {
	info, err := flowControl(o.as(r).Bucket(of.Bucket), *of).Info(r.Context())
	return opsview.FlowOf(&info), err
}

func (o *ops) showGroup(r *http.Request, of *GroupName) (*opsview.Group, error) {
	info, err := o.as(r).Bucket(of.Bucket).Group(of.Group).Info(r.Context())
	return opsview.GroupOf(&info), err
}

// change makes an operator's change, and returns the changed flow or group.
func (p *parts[N, V, P, S]) change(r *http.Request, of N, do func(ctx context.Context, part partControl) (opsview.Outcome, error)) (*V, error) {
	bucket, _ := of.part()
	var before *V
	if isRecorded(r) {
		var err error
		if before, err = p.show(r, &of); err != nil {
			return nil, err
		}
	}
	return change(r, func(ctx context.Context) (opsview.Outcome, error) {
		return do(ctx, p.control(p.as(r).Bucket(bucket), of))
	},
		func(r *http.Request, outcome opsview.Outcome) (*V, error) {
			view, err := p.show(r, &of)
			if before != nil && err == nil {
				changedFrom(r, p.own(before), p.own(view))
			}
			P(view).Alike().Changed = outcome.Changed
			return view, err
		})
}

// changeKnown is change for a flow or group that the bucket has now, or for any name, if it may be created.
func (p *parts[N, V, P, S]) changeKnown(r *http.Request, of N, may MayCreate, do func(ctx context.Context, part partControl) (opsview.Outcome, error)) (*V, error) {
	return p.change(r, of, func(ctx context.Context, part partControl) (opsview.Outcome, error) {
		if !may.Create {
			view, err := p.show(r, &of)
			if err != nil {
				return opsview.Outcome{}, err
			}
			if P(view).Alike().Unknown {
				return opsview.Outcome{}, p.notKnown(of)
			}
		}
		return do(ctx, part)
	})
}

// notKnown returns the fault of a flow or a group that the bucket does not have now.
func (p *parts[N, V, P, S]) notKnown(of N) *fault {
	code := codeUnknownFlow
	if p.kind == "group" {
		code = codeUnknownGroup
	}
	bucket, name := of.part()
	return newFault(code, "bucket %q has no %s %q now: correct the name, or add &create=true if its first job is still to come", bucket, p.kind, name)
}

// pause stops departures.
func (p *parts[N, V, P, S]) pause(r *http.Request, in *PartPause[N]) (*V, error) {
	return p.changeKnown(r, in.Part, in.MayCreate, func(ctx context.Context, part partControl) (opsview.Outcome, error) {
		return opsview.Outcome{}, part.Pause(ctx, in.Reason)
	})
}

// resume ends a pause.
func (p *parts[N, V, P, S]) resume(r *http.Request, of *N) (*V, error) {
	return p.change(r, *of, func(ctx context.Context, part partControl) (opsview.Outcome, error) {
		return outcomeOf(part.Resume(ctx))
	})
}

// releaseFlow ends a hold and an open circuit breaker of a flow.
func (o *ops) releaseFlow(r *http.Request, in *FlowName) (*opsview.Flow, error) {
	return change(r, func(ctx context.Context) (opsview.Outcome, error) {
		return outcomeOf(flowControl(o.as(r).Bucket(in.Bucket), *in).Release(ctx))
	}, func(r *http.Request, outcome opsview.Outcome) (*opsview.Flow, error) {
		return o.flowAfter(r, in, outcome)
	})
}

// enableFlow enables a disabled flow, and redrives its dead letters if requested.
func (o *ops) enableFlow(r *http.Request, in *FlowEnable) (*opsview.EnabledFlow, error) {
	answer := &opsview.EnabledFlow{}
	return change(r, func(ctx context.Context) (opsview.Outcome, error) {
		f := flowControl(o.as(r).Bucket(in.Bucket), in.FlowName)
		was, err := f.Enable(ctx)
		if err == nil && in.Redrive {
			var redriven operator.Redriven
			redriven, err = f.RedriveDisabled(ctx)
			answer.Redriven = &opsview.FlowRedriven{Moved: redriven.Moved, Full: redriven.Full + redriven.FlowFull + redriven.GroupFull}
		}
		return outcomeOf(was, err)
	}, func(r *http.Request, outcome opsview.Outcome) (*opsview.EnabledFlow, error) {
		view, err := o.flowAfter(r, &in.FlowName, outcome)
		answer.Flow = *view
		return answer, err
	})
}

// flowAfter returns a flow with the result of its change.
func (o *ops) flowAfter(r *http.Request, of *FlowName, outcome opsview.Outcome) (*opsview.Flow, error) {
	view, err := o.showFlow(r, of)
	view.Changed = outcome.Changed
	return view, err
}

// purge drops all waiting jobs of a flow or group.
func (p *parts[N, V, P, S]) purge(r *http.Request, in *PartPurge[N]) (*opsview.Purge, error) {
	bucket, name := in.Part.part()
	view := opsview.Purge{Bucket: bucket}
	switch of := any(in.Part).(type) {
	case FlowName:
		view.Flow, view.Group = &of.Flow, of.Group
	case GroupName:
		view.Group = &of.Group
	}
	return p.ops.purge(r, purgeOf{
		PurgeRequest: in.PurgeRequest, view: view, name: name, what: p.kind, purge: p.control(p.as(r).Bucket(bucket), in.Part).Purge,
		waiting: func(context.Context, bool) (int64, error) {
			one, err := p.show(r, &in.Part)
			return P(one).Alike().Waiting, err
		},
	})
}

// set changes settings of one flow or group; null removes the own value.
func (p *parts[N, V, P, S]) set(r *http.Request, in *PartPatch[N]) (*V, error) {
	patch, f := p.readPatch(in.Settings, false)
	if f != nil {
		return nil, f
	}
	return p.changeKnown(r, in.Part, in.MayCreate, func(ctx context.Context, part partControl) (opsview.Outcome, error) {
		_, err := part.Set(ctx, patch)
		return opsview.Outcome{}, err
	})
}

// replace replaces the settings of a flow or group, also of one that is not there yet. A URL, headers and secrets that are not named
// stay, because no client can read them to send them again.
func (p *parts[N, V, P, S]) replace(r *http.Request, in *PartReplacement[N]) (*V, error) {
	patch, f := p.readPatch(in.Settings, true)
	if f != nil {
		return nil, f
	}
	return p.change(r, in.Part, func(ctx context.Context, part partControl) (opsview.Outcome, error) {
		_, err := part.Set(ctx, patch)
		return opsview.Outcome{}, err
	})
}

// reset removes all own settings of one flow or group.
func (p *parts[N, V, P, S]) reset(r *http.Request, of *N) (*V, error) {
	return p.change(r, *of, func(ctx context.Context, part partControl) (opsview.Outcome, error) {
		return outcomeOf(part.Reset(ctx))
	})
}

// removalTurn is how long one request works on a removal.
const removalTurn = 2 * time.Second

// removeFlow drops all that is kept of a flow, or counts it, part by part.
func (o *ops) removeFlow(r *http.Request, in *FlowRemove) (*opsview.RemovedFlow, error) {
	if !in.DryRun && (in.Confirm == nil || *in.Confirm != in.Flow) {
		return nil, invalid([]*shaper.FieldError{{Field: "confirm", Reason: fmt.Sprintf("want %q, the flow's name: all that is kept of it is dropped for good", in.Flow)}})
	}
	ctx, cancel := o.patient(r)
	defer cancel()
	sum := operator.FlowRemoval{Next: in.Cursor}
	for began := time.Now(); ; {
		part, err := flowControl(o.as(r).Bucket(in.Bucket), in.FlowName).Remove(ctx, sum.Next, in.DryRun)
		if err != nil {
			return nil, o.partial(r, err, func(p *problem) { p.Purged, p.Dropped = sum.Waiting+part.Waiting, sum.Dead+part.Dead })
		}
		if sum.Add(part); sum.Next == "" || time.Since(began) > removalTurn {
			break
		}
	}
	return &opsview.RemovedFlow{
		Bucket: in.Bucket, Group: in.Group, Flow: in.Flow, Waiting: sum.Waiting, Dead: sum.Dead, Results: sum.Results,
		Own: append([]string{}, sum.Own...), InFlight: sum.InFlight, Next: sum.Next,
	}, nil
}
