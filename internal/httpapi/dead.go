package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// listDead returns one page of dead letters, the newest first, and the cursor of the next.
func (o *ops) listDead(r *http.Request, in *DeadQuery) (*opsview.DeadPage, error) {
	if in.Offset != nil && (in.Cursor != "" || in.DeadFilter != (operator.DeadFilter{})) {
		return nil, invalid([]*shaper.FieldError{{Field: "offset", Reason: "counts all dead letters, so it goes with no filter and no cursor: go on with the cursor"}})
	}
	var page operator.DeadPage
	var err error
	if dead := in.trimPayloads(o.buckets.Bucket(in.Bucket)).Dead(); in.Offset != nil {
		page.DeadLetters, err = dead.List(r.Context(), *in.Offset, in.limit())
		page.Looked = len(page.DeadLetters)
	} else {
		page, err = dead.Find(r.Context(), in.DeadFilter, in.Cursor, in.limit())
	}
	answer := &opsview.DeadPage{Dead: make([]*opsview.Job, len(page.DeadLetters)), Looked: page.Looked, Next: page.Next}
	for i := range page.DeadLetters {
		answer.Dead[i] = opsview.JobForOperators(&page.DeadLetters[i])
	}
	return answer, err
}

// showDeadReasons returns the number of dead letters by reason.
func (o *ops) showDeadReasons(r *http.Request, in *DeadReasonsQuery) (*DeadReasons, error) {
	sum, err := o.buckets.Bucket(in.Bucket).Dead().Reasons(r.Context(), in.DeadFilter, in.Cursor)
	if err != nil {
		return nil, err
	}
	return &DeadReasons{Reasons: append([]operator.DeadReason{}, sum.Reasons...), Looked: sum.Looked, Next: sum.Next}, nil
}

// validate reports fields that exclude each other. limit is the limit of a redrive of all; 0 is none.
func (c *DeadChoice) validate(limit int) error {
	field, reason := "", ""
	filtered := c.Filter != (operator.DeadFilter{})
	switch {
	case c.IDs != nil && (c.All || filtered || c.DryRun || c.Cursor != ""):
		field, reason = "ids", "go with no filter, all, cursor or dry_run: choose one"
	case c.All && filtered:
		field, reason = "all", "goes with no filter: choose one"
	case limit > 0 && (!c.All || c.DryRun || c.Cursor != ""):
		field, reason = "limit", "goes with all, and without a cursor and dry_run"
	case c.IDs == nil && !c.All && !filtered && !c.DryRun:
		field, reason = "filter", "is empty, and would mean every dead letter: say which, or say \"all\": true"
	default:
		return nil
	}
	return invalid([]*shaper.FieldError{{Field: field, Reason: reason}})
}

// redriveDead redrives dead letters, the oldest first.
func (o *ops) redriveDead(r *http.Request, in *DeadRedrive) (*opsview.DeadChange, error) {
	if err := in.validate(in.Limit); err != nil {
		return nil, err
	}
	ctx, dead := context.WithoutCancel(r.Context()), o.as(r).Bucket(in.Bucket).Dead()
	var change operator.DeadChange
	var err error
	switch {
	case in.IDs != nil:
		change.Redriven, err = dead.Redrive(ctx, in.IDs...)
	case in.Limit > 0:
		change.Redriven, err = dead.RedriveAll(ctx, in.Limit)
	default:
		change, err = dead.RedriveFound(ctx, in.Filter, in.Cursor, in.DryRun)
	}
	view := deadChangeView(&change)
	view.Moved = &change.Moved
	return o.deadChanged(r, view, err)
}

// dropDead drops dead letters for good, the oldest first.
func (o *ops) dropDead(r *http.Request, in *DeadChoice) (*opsview.DeadChange, error) {
	if err := in.validate(0); err != nil {
		return nil, err
	}
	if in.IDs == nil && !in.DryRun && in.Confirm != in.Bucket {
		return nil, invalid([]*shaper.FieldError{{Field: "confirm", Reason: "want the bucket's name: dead letters are dropped for good"}})
	}
	ctx, dead := context.WithoutCancel(r.Context()), o.as(r).Bucket(in.Bucket).Dead()
	if in.IDs != nil {
		view, err := dropIDs(ctx, dead, in.IDs)
		return o.deadChanged(r, view, err)
	}
	change, err := dead.DropFound(ctx, in.Filter, in.Cursor, in.DryRun)
	view := deadChangeView(&change)
	view.Dropped = &change.Dropped
	return o.deadChanged(r, view, err)
}

// dropIDs drops the dead letters that it can, and returns the ids that are none.
func dropIDs(ctx context.Context, dead operator.DeadLetters, ids []string) (*opsview.DeadChange, error) {
	view := &opsview.DeadChange{Dropped: new(int)}
	for _, id := range ids {
		state, err := dead.Drop(ctx, id)
		switch {
		case errors.Is(err, shaper.ErrNotFound):
			view.NotDead = append(view.NotDead, opsview.NotDead{ID: id})
		case err != nil:
			return view, err
		case state == shaper.StateDropped:
			*view.Dropped++
		default:
			view.NotDead = append(view.NotDead, opsview.NotDead{ID: id, State: state})
		}
	}
	return view, nil
}

// deadChanged returns the result of a change to dead letters, also of a change that failed half way.
func (o *ops) deadChanged(r *http.Request, view *opsview.DeadChange, err error) (*opsview.DeadChange, error) {
	if err == nil {
		return view, nil
	}
	return nil, o.partial(r, err, func(p *problem) {
		if view.Moved != nil {
			p.Moved = *view.Moved
		}
		if view.Dropped != nil {
			p.Dropped = *view.Dropped
		}
	})
}

func deadChangeView(change *operator.DeadChange) *opsview.DeadChange {
	return &opsview.DeadChange{
		Matched: change.Matched, Looked: change.Looked, Full: change.Full, FlowFull: change.FlowFull, GroupFull: change.GroupFull,
		Disabled: change.Disabled, Unknown: change.Unknown, Next: change.Next, Waiting: change.Waiting,
	}
}
