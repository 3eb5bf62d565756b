package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// BucketLimits are the methods of [*producer.Client] that change a limit in
// the buckets that name it.
type BucketLimits interface {
	OverrideLimit(ctx context.Context, name string, p admission.Patch) error
	ResetLimit(ctx context.Context, name string) error
}

// limitOps serves the routes that show and change limits. Both servers have them.
type limitOps struct {
	limits  Limits       // nil: there are none
	buckets BucketLimits // the same limits as the buckets count them; nil: none
	store   *storeFaults
	log     *slog.Logger
}

func (l limitOps) routes() []route {
	return []route{
		bind(l.fault, ListLimits, l.list),
		bind(l.fault, ShowLimit, l.show),
		bind(l.fault, ChangeLimit, l.change),
		bind(l.fault, ResetLimit, l.reset),
	}
}

// fault returns the fault of an error of the limiter.
func (l limitOps) fault(r *http.Request, err error) *fault { return limitFault(r, l.store, err) }

func limitViewOf(info *admission.LimitInfo) *LimitView {
	view := &LimitView{Name: info.Configured.Name, Configured: &info.Configured, InForce: &info.InForce}
	if !info.Override.IsZero() {
		view.Override = &info.Override
	}
	return view
}

func (l limitOps) infos(ctx context.Context) ([]admission.LimitInfo, error) {
	if l.limits == nil {
		return nil, nil
	}
	return l.limits.Limits(ctx)
}

func (l limitOps) list(r *http.Request, _ *struct{}) (*LimitList, error) {
	infos, err := l.infos(r.Context())
	list := &LimitList{make([]*LimitView, len(infos))}
	for i := range infos {
		list.Limits[i] = limitViewOf(&infos[i])
	}
	return list, err
}

func (l limitOps) show(r *http.Request, in *LimitName) (*LimitView, error) {
	infos, err := l.infos(r.Context())
	for i := range infos {
		if infos[i].Configured.Name == in.Limit {
			return limitViewOf(&infos[i]), nil
		}
	}
	if err == nil {
		err = admission.ErrUnknownLimit
	}
	return nil, err
}

// change changes a limit for all processes, until the override is reset: first the standalone limit, then the limit in every bucket that names it.
func (l limitOps) change(r *http.Request, in *LimitPatch) (*LimitView, error) {
	patch, err := decodePatch(in.Patch)
	if err != nil {
		return nil, invalid(fieldErrors(err))
	}
	return l.override(r, in.Limit, limitChange{
		limit: func(ctx context.Context, name string) (admission.Limit, error) {
			return l.limits.Override(ctx, name, patch)
		},
		buckets: func(ctx context.Context, name string) error { return l.buckets.OverrideLimit(ctx, name, patch) },
	})
}

// reset removes the override of a limit.
func (l limitOps) reset(r *http.Request, in *LimitName) (*LimitView, error) {
	return l.override(r, in.Limit, limitChange{
		limit: func(ctx context.Context, name string) (admission.Limit, error) {
			return l.limits.ResetOverride(ctx, name)
		},
		buckets: func(ctx context.Context, name string) error { return l.buckets.ResetLimit(ctx, name) },
	})
}

// limitChange is a change that is made twice: to the standalone limit, and to the limit of buckets.
type limitChange struct {
	limit   func(ctx context.Context, name string) (admission.Limit, error)
	buckets func(ctx context.Context, name string) error
}

func (l limitOps) override(r *http.Request, name string, c limitChange) (*LimitView, error) {
	ctx := context.WithoutCancel(r.Context())
	before := &LimitView{}
	if isRecorded(r) {
		if view, err := l.show(r, &LimitName{name}); err == nil {
			before = view
		}
	}
	var inForce admission.Limit
	err := admission.ErrUnknownLimit
	if l.limits != nil {
		inForce, err = c.limit(ctx, name)
	}
	if bad, ok := errors.AsType[*admission.InvalidPatchError](err); ok {
		return nil, invalid(patchFaults(bad.Err))
	}
	if err != nil {
		f := l.fault(r, err)
		if mayHaveRun(err) {
			f.Detail = fmt.Sprintf("Redis is not reachable or too slow: limit %q may be changed at the check, and is not in buckets; "+
				"send the same request again, which is safe", name)
		}
		return nil, f
	}
	if l.buckets != nil {
		err = c.buckets(ctx, name)
	}
	if err != nil {
		f := l.store.faultOf(r, err)
		f.Detail = fmt.Sprintf("limit %q is changed at the check, and perhaps not in all the buckets that name it; "+
			"send the same request again, which is safe", name)
		return nil, f
	}
	l.log.InfoContext(ctx, "limit changed", "limit", name, "in_force", inForce.Limit.String(), "burst", inForce.Burst,
		"mode", string(inForce.Mode), "method", r.Method, "key", keyName(r), "request_id", requestID(r))
	changedFrom(r, before.InForce, &inForce)
	return &LimitView{Name: name, InForce: &inForce}, nil
}

// showRefusals returns the callers that a limit refused. A limit that is only in other configurations is known by its refusals.
func (o *ops) showRefusals(r *http.Request, in *LimitName) (*LimitRefusals, error) {
	s, err := o.buckets.Fleet().Look(r.Context())
	if err != nil {
		return nil, err
	}
	answer := &LimitRefusals{Limit: in.Limit}
	if answer.Callers, answer.Others = s.Refused(in.Limit); answer.Callers == nil && answer.Others == 0 {
		answer.Callers = []fleet.Refusals{}
		_, err = o.limits.show(r, in)
	}
	return answer, err
}
