package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (o *ops) jobRoutes() []route {
	return []route{
		{"GET", "/v1/buckets/{bucket}/jobs", o.lists.few(o.listJobs), roles(apikey.RoleRead)},
		{"GET", "/v1/buckets/{bucket}/dead", o.lists.few(o.listDead), roles(apikey.RoleRead)},
		{"POST", "/v1/buckets/{bucket}/dead/redrive", o.redriveDead, roles(apikey.RoleAdmin)},
		{"DELETE", "/v1/buckets/{bucket}/dead", o.dropDead, roles(apikey.RoleAdmin)},
	}
}

// listDead answers dead letters, the newest first, and where to go on: GET /v1/buckets/{bucket}/dead.
func (o *ops) listDead(w http.ResponseWriter, r *http.Request) {
	var filter operator.DeadFilter
	offset, bucket := -1, r.PathValue("bucket")
	list, f := listQuery(r, func(d *jobDecoder, name, text string) {
		if name != "offset" {
			d.deadFilter(&filter, name, text)
			return
		}
		n, err := strconv.Atoi(text)
		if offset = n; err != nil || n < 0 {
			d.fail(name, "want 0 or more")
		}
	})
	if f == nil && offset >= 0 && (list.cursor != "" || filter != (operator.DeadFilter{})) {
		f = invalid([]*shaper.FieldError{{Field: "offset", Reason: "counts all dead letters, so it goes with no filter and no cursor: go on with the cursor"}})
	}
	if f != nil {
		f.write(w, r)
		return
	}
	var page operator.DeadPage
	var err error
	if dead := list.of(o.buckets.Bucket(bucket)).Dead(); offset >= 0 {
		page.Letters, err = dead.List(r.Context(), offset, list.limit)
		page.Looked = len(page.Letters)
	} else {
		page, err = dead.Find(r.Context(), filter, list.cursor, list.limit)
	}
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	answer := opsview.DeadPage{Dead: make([]*opsview.Job, len(page.Letters)), Looked: page.Looked, Next: page.Next}
	for i := range page.Letters {
		answer.Dead[i] = opsview.JobForOperators(&page.Letters[i])
	}
	writeJSON(w, http.StatusOK, answer)
}

// deadFilter reads a part of a filter.
func (d *jobDecoder) deadFilter(f *operator.DeadFilter, name, text string) {
	switch name {
	case "cause":
		f.Cause = text
	case "reason":
		f.Reason = text
	case "flow":
		f.Flow = &text
	case "group":
		f.Group = &text
	case "status":
		n, err := strconv.Atoi(text)
		if f.Status = n; err != nil || n == 0 {
			d.fail(name, "want a status of HTTP, 100 to 599")
		}
	case "since":
		f.Since = d.instant(name, text)
	case "until":
		f.Until = d.instant(name, text)
	case "q":
		f.Text = text
	default:
		d.fail(name, "is not taken here: want cause, reason, flow, group, status, since, until or q")
	}
}

// maxIDs is how many dead letters one request may name.
const maxIDs = 200

// deadChange is what is asked to be done with dead letters.
type deadChange struct {
	ids     []string
	filter  operator.DeadFilter
	all     bool
	limit   int // of all; 0 is no limit
	cursor  string
	dryRun  bool
	confirm string
}

func readDeadChange(w http.ResponseWriter, r *http.Request) (c deadChange, _ *fault) {
	var d jobDecoder // for the faults of members that do not go together
	f := readObject(w, r, func(d *jobDecoder, name string, value []byte) {
		switch name {
		case "ids":
			if json.Unmarshal(value, &c.ids) != nil || len(c.ids) == 0 || len(c.ids) > maxIDs {
				d.fail(name, fmt.Sprintf("want a list of 1 to %d ids", maxIDs))
			}
		case "filter":
			if !d.object(value, func(d *jobDecoder, name string, value []byte) {
				text := string(value)
				if name != "status" {
					text, _ = d.text(name, value)
				}
				d.deadFilter(&c.filter, name, text)
			}) {
				d.fail(name, "want an object")
			}
		case "all":
			c.all = d.truth(name, value)
		case "limit":
			n, err := strconv.Atoi(string(value))
			if c.limit = n; err != nil || n < 1 || n > maxJobs {
				d.fail(name, fmt.Sprintf("want 1 to %d", maxJobs))
			}
		case "cursor":
			c.cursor, _ = d.text(name, value)
		case "confirm":
			c.confirm, _ = d.text(name, value)
		case "dry_run":
			c.dryRun = d.truth(name, value)
		default:
			d.fail(name, "is not taken here: want ids, filter, all, limit, cursor, dry_run or confirm")
		}
	})
	if f != nil {
		return c, f
	}
	filtered := c.filter != (operator.DeadFilter{})
	switch {
	case c.ids != nil && (c.all || filtered || c.dryRun || c.cursor != ""):
		d.fail("ids", "go with no filter, all, cursor or dry_run: choose one")
	case c.all && filtered:
		d.fail("all", "goes with no filter: choose one")
	case c.limit > 0 && (!c.all || c.dryRun || c.cursor != ""):
		d.fail("limit", "goes with all, and without a cursor and dry_run")
	case c.ids == nil && !c.all && !filtered && !c.dryRun:
		d.fail("filter", "is empty, and would mean every dead letter: say which, or say \"all\": true")
	default:
		return c, nil
	}
	return c, invalid(fieldErrors(errors.Join(d.errs...)))
}

// redriveDead redrives dead letters, the oldest first: POST /v1/buckets/{bucket}/dead/redrive.
func (o *ops) redriveDead(w http.ResponseWriter, r *http.Request) {
	c, f := readDeadChange(w, r)
	if f != nil {
		f.write(w, r)
		return
	}
	ctx, dead := context.WithoutCancel(r.Context()), o.as(r).Bucket(r.PathValue("bucket")).Dead()
	var change operator.DeadChange
	var err error
	switch {
	case c.ids != nil:
		change.Redriven, err = dead.Redrive(ctx, c.ids...)
	case c.limit > 0:
		change.Redriven, err = dead.RedriveAll(ctx, c.limit)
	default:
		change, err = dead.RedriveFound(ctx, c.filter, c.cursor, c.dryRun)
	}
	view := deadChangeView(&change)
	view.Moved = &change.Moved
	o.answerDead(w, r, view, err)
}

// dropDead drops dead letters for good, the oldest first: DELETE /v1/buckets/{bucket}/dead.
func (o *ops) dropDead(w http.ResponseWriter, r *http.Request) {
	bucket := r.PathValue("bucket")
	c, f := readDeadChange(w, r)
	switch {
	case f != nil:
	case c.limit > 0:
		f = invalid([]*shaper.FieldError{{Field: "limit", Reason: "is not taken here"}})
	case c.ids == nil && !c.dryRun && c.confirm != bucket:
		f = invalid([]*shaper.FieldError{{Field: "confirm", Reason: "want the bucket's name: dead letters are dropped for good"}})
	}
	if f != nil {
		f.write(w, r)
		return
	}
	ctx, dead := context.WithoutCancel(r.Context()), o.as(r).Bucket(bucket).Dead()
	if c.ids != nil {
		view, err := dropIDs(ctx, dead, c.ids)
		o.answerDead(w, r, view, err)
		return
	}
	change, err := dead.DropFound(ctx, c.filter, c.cursor, c.dryRun)
	view := deadChangeView(&change)
	view.Dropped = &change.Dropped
	o.answerDead(w, r, view, err)
}

// dropIDs drops the dead letters that it can, and tells which ids are of none.
func dropIDs(ctx context.Context, dead operator.DeadControl, ids []string) (*opsview.DeadChange, error) {
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

// answerDead answers what became of dead letters, also of those before an error.
func (o *ops) answerDead(w http.ResponseWriter, r *http.Request, view *opsview.DeadChange, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, view)
		return
	}
	p := o.controlFault(r, r.PathValue("bucket"), err).problem(r)
	if view.Moved != nil {
		p.Moved = *view.Moved
	}
	if view.Dropped != nil {
		p.Dropped = *view.Dropped
	}
	p.write(w)
}

func deadChangeView(change *operator.DeadChange) *opsview.DeadChange {
	return &opsview.DeadChange{
		Matched: change.Matched, Looked: change.Looked, Full: change.Full, FlowFull: change.FlowFull, GroupFull: change.GroupFull,
		Disabled: change.Disabled, Unknown: change.Unknown, Next: change.Next, Waiting: change.Waiting,
	}
}
