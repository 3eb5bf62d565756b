package httpapi

import (
	"context"
	"net/http"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

const partsAtOnce = 100 // flows or groups of a list that names no limit

// parts serves the flows of a bucket, or its groups.
type parts[N PartName] struct {
	*ops
	opsview.Kind
}

// partRoutes are the routes that flows and groups have both.
func partRoutes[N PartName](o *ops, kind opsview.Kind, ops PartOperations[N]) []route {
	p := parts[N]{o, kind}
	return []route{
		bind(o.fault, ops.Show, p.show),
		bind(o.fault, ops.Set, p.set),
		bind(o.fault, ops.Pause, p.pause),
		bind(o.fault, ops.Resume, p.resume),
		bind(o.fault, ops.Purge, p.purge),
		bind(o.fault, ops.ShowSettings, p.showSettings),
		bind(o.fault, ops.PutSettings, p.putSettings),
		bind(o.fault, ops.DeleteSettings, p.deleteSettings),
	}
}

func (o *ops) listFlows(r *http.Request, in *FlowQuery) (*FlowList, error) {
	views, next, err := opsview.Flows().List(r.Context(), o.buckets.Bucket(in.Bucket), in.Group, in.Cursor, in.limit())
	return &FlowList{views, next}, err
}

func (o *ops) listGroups(r *http.Request, in *GroupQuery) (*GroupList, error) {
	views, next, err := opsview.Groups().List(r.Context(), o.buckets.Bucket(in.Bucket), nil, in.Cursor, in.limit())
	return &GroupList{views, next}, err
}

func (p *PartPage) limit() int {
	if p.Limit == 0 {
		return partsAtOnce
	}
	return p.Limit
}

// one is a flow or a group, to look at and to change.
func (p parts[N]) one(r *http.Request, of N) opsview.Part {
	bucket, name, group := of.part()
	return p.One(p.as(r).Bucket(bucket), group, name)
}

func (p parts[N]) show(r *http.Request, of *N) (*opsview.View, error) {
	view, err := p.one(r, *of).Show(r.Context())
	return &view, err
}

// partChange is a change of a flow or a group by an operator.
type partChange func(ctx context.Context, part opsview.Part) (opsview.Outcome, error)

func (p parts[N]) change(r *http.Request, of N, do partChange) (*opsview.View, error) {
	part := p.one(r, of)
	return change(r, func(ctx context.Context) (opsview.Outcome, error) { return do(ctx, part) },
		func(outcome opsview.Outcome) (*opsview.View, error) {
			view, err := part.Show(r.Context())
			view.Outcome = outcome
			return &view, err
		})
}

// changeKnown is change for a flow or group that the bucket has now, or for any name, if it may be created.
func (p parts[N]) changeKnown(r *http.Request, of N, may MayCreate, do partChange) (*opsview.View, error) {
	return p.change(r, of, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		if !may.Create {
			view, err := part.Show(ctx)
			if err != nil {
				return opsview.Outcome{}, err
			}
			if view.Unknown {
				return opsview.Outcome{}, p.notKnown(of)
			}
		}
		return do(ctx, part)
	})
}

// notKnown says that a bucket does not have a flow or a group now.
func (p parts[N]) notKnown(of N) *fault {
	code := codeUnknownFlow
	if p.Name == "group" {
		code = codeUnknownGroup
	}
	bucket, name, _ := of.part()
	return newFault(code, "bucket %q has no %s %q now: correct the name, or add &create=true if its first job is still to come", bucket, p.Name, name)
}

// pause stops departures.
func (p parts[N]) pause(r *http.Request, in *PartPause[N]) (*opsview.View, error) {
	return p.changeKnown(r, in.Part, in.MayCreate, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return opsview.Outcome{}, part.Pause(ctx, in.Reason)
	})
}

// resume lets one run again.
func (p parts[N]) resume(r *http.Request, of *N) (*opsview.View, error) {
	return p.change(r, *of, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return outcomeOf(part.Resume(ctx))
	})
}

// flow is a flow to change.
func (o *ops) flow(r *http.Request, of FlowName) operator.FlowControl {
	bucket := o.as(r).Bucket(of.Bucket)
	if of.Group != nil {
		return bucket.Group(*of.Group).Flow(of.Flow)
	}
	return bucket.Flow(of.Flow)
}

// changeFlow is change of what only flows have.
func (o *ops) changeFlow(r *http.Request, of FlowName, do func(ctx context.Context, f operator.FlowControl) (opsview.Outcome, error)) (*opsview.View, error) {
	return parts[FlowName]{o, opsview.Flows()}.change(r, of, func(ctx context.Context, _ opsview.Part) (opsview.Outcome, error) {
		return do(ctx, o.flow(r, of))
	})
}

// releaseFlow ends a hold and an open circuit breaker of a flow.
func (o *ops) releaseFlow(r *http.Request, in *FlowName) (*opsview.View, error) {
	return o.changeFlow(r, *in, func(ctx context.Context, f operator.FlowControl) (opsview.Outcome, error) {
		return outcomeOf(f.Release(ctx))
	})
}

// enableFlow lets a disabled flow run again, and redrives its dead letters, if that is asked.
func (o *ops) enableFlow(r *http.Request, in *FlowEnable) (*opsview.EnabledFlow, error) {
	answer := &opsview.EnabledFlow{}
	view, err := o.changeFlow(r, in.FlowName, func(ctx context.Context, f operator.FlowControl) (opsview.Outcome, error) {
		was, err := f.Enable(ctx)
		if err == nil && in.Redrive {
			var redriven operator.Redriven
			redriven, err = f.RedriveDisabled(ctx)
			answer.Redriven = &opsview.FlowRedriven{Moved: redriven.Moved, Full: redriven.Full + redriven.FlowFull + redriven.GroupFull}
		}
		return outcomeOf(was, err)
	})
	if err != nil {
		return nil, err
	}
	answer.View = *view
	return answer, nil
}

// purge drops all waiting jobs of a flow or group.
func (p parts[N]) purge(r *http.Request, in *PartPurge[N]) (*opsview.Purge, error) {
	part := p.one(r, in.Part)
	bucket, name, group := in.Part.part()
	view := opsview.Purge{Bucket: bucket, Flow: &name, Group: group}
	if p.Name == "group" {
		view.Flow, view.Group = nil, &name
	}
	return p.ops.purge(r, purgeOf{
		PurgeRequest: in.PurgeRequest, view: view, name: name, what: p.Name, purge: part.Purge,
		waiting: func(ctx context.Context, _ bool) (int64, error) {
			one, err := part.Show(ctx)
			return one.Waiting, err
		},
	})
}

// set changes settings of one; null has one be as for all.
func (p parts[N]) set(r *http.Request, in *PartPatch[N]) (*opsview.View, error) {
	patch, f := p.readPatch(in.Settings, false)
	if f != nil {
		return nil, f
	}
	return p.changeKnown(r, in.Part, in.MayCreate, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		_, err := part.Set(ctx, patch)
		return opsview.Outcome{}, err
	})
}

// putSettings replaces the settings of a flow or group, also of one that is not there yet. A URL, headers and secrets that are not named
// stay, because no client can read them to send them again.
func (p parts[N]) putSettings(r *http.Request, in *PartReplacement[N]) (*opsview.View, error) {
	patch, f := p.readPatch(in.Settings, true)
	if f != nil {
		return nil, f
	}
	return p.change(r, in.Part, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		_, err := part.Set(ctx, patch)
		return opsview.Outcome{}, err
	})
}

// showSettings answers a flow's or group's own settings.
func (p parts[N]) showSettings(r *http.Request, of *N) (*opsview.Settings, error) {
	view, err := p.one(r, *of).Show(r.Context())
	return &view.Settings, err
}

// deleteSettings has one be as all of its bucket.
func (p parts[N]) deleteSettings(r *http.Request, of *N) (*opsview.View, error) {
	return p.change(r, *of, func(ctx context.Context, part opsview.Part) (opsview.Outcome, error) {
		return outcomeOf(part.Reset(ctx))
	})
}
