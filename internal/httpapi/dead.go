package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (o *ops) jobRoutes() []route {
	return []route{
		{"GET", "/v1/buckets/{bucket}/jobs", o.listJobs, roles(RoleRead)},
		{"GET", "/v1/buckets/{bucket}/dead", o.listDead, roles(RoleRead)},
		{"POST", "/v1/buckets/{bucket}/dead/redrive", o.redriveDead, roles(RoleAdmin)},
		{"DELETE", "/v1/buckets/{bucket}/dead", o.dropDead, roles(RoleAdmin)},
	}
}

// deadView is a dead letter: the job, and how its last attempts ended.
type deadView struct {
	*jobView
	LastAttempts []opsview.Attempt `json:"last_attempts,omitempty"`
}

// listDead answers dead letters, the newest first, and where to go on: GET /v1/buckets/{bucket}/dead.
func (o *ops) listDead(w http.ResponseWriter, r *http.Request) {
	var filter operator.DeadFilter
	bucket := r.PathValue("bucket")
	cursor, limit, f := listQuery(r, func(d *jobDecoder, name, text string) { d.deadFilter(&filter, name, text) })
	if f != nil {
		f.write(w, r)
		return
	}
	page, err := o.buckets.Bucket(bucket).Dead().Find(r.Context(), filter, cursor, limit)
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	answer := struct {
		Dead   []deadView `json:"dead"`
		Looked int        `json:"looked_at"`
		Next   string     `json:"next,omitempty"`
	}{make([]deadView, len(page.Letters)), page.Looked, page.Next}
	for i := range page.Letters {
		answer.Dead[i] = deadView{viewOf(&page.Letters[i]), opsview.Attempts(page.Letters[i].LastAttempts)}
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

// deadChange is what is asked to be done with dead letters.
type deadChange struct {
	filter  operator.DeadFilter
	cursor  string
	dryRun  bool
	confirm string
}

func readDeadChange(w http.ResponseWriter, r *http.Request) (deadChange, *fault) {
	var c deadChange
	f := readObject(w, r, func(d *jobDecoder, name string, value []byte) {
		switch name {
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
		case "cursor":
			c.cursor, _ = d.text(name, value)
		case "confirm":
			c.confirm, _ = d.text(name, value)
		case "dry_run":
			if c.dryRun = string(value) == "true"; !c.dryRun && string(value) != "false" {
				d.fail(name, "want true or false")
			}
		default:
			d.fail(name, "is not taken here: want filter, cursor, dry_run or confirm")
		}
	})
	return c, f
}

// deadChangeView is what became of dead letters.
type deadChangeView struct {
	Matched  int    `json:"matched"`
	Looked   int    `json:"looked_at"`
	Moved    *int   `json:"moved,omitempty"`
	Dropped  *int   `json:"dropped,omitempty"`
	Full     int    `json:"full,omitempty"`      // left dead: the bucket is full
	FlowFull int    `json:"flow_full,omitempty"` // or their flow or group is
	Disabled int    `json:"flow_disabled,omitempty"`
	Next     string `json:"next,omitempty"`
	Waiting  bool   `json:"waiting,omitempty"`
}

// redriveDead redrives dead letters, the oldest first: POST /v1/buckets/{bucket}/dead/redrive.
func (o *ops) redriveDead(w http.ResponseWriter, r *http.Request) {
	c, f := readDeadChange(w, r)
	if f != nil {
		f.write(w, r)
		return
	}
	bucket := r.PathValue("bucket")
	change, err := o.as(r).Bucket(bucket).Dead().RedriveFound(context.WithoutCancel(r.Context()), c.filter, c.cursor, c.dryRun)
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	view := deadChangeViewOf(&change)
	view.Moved = &change.Moved
	writeJSON(w, http.StatusOK, view)
}

// dropDead drops dead letters for good, the oldest first: DELETE /v1/buckets/{bucket}/dead.
func (o *ops) dropDead(w http.ResponseWriter, r *http.Request) {
	bucket := r.PathValue("bucket")
	c, f := readDeadChange(w, r)
	if f == nil && !c.dryRun && c.confirm != bucket {
		f = invalid([]*shaper.FieldError{{Field: "confirm", Reason: "want the bucket's name: dead letters are dropped for good"}})
	}
	if f != nil {
		f.write(w, r)
		return
	}
	change, err := o.as(r).Bucket(bucket).Dead().DropFound(context.WithoutCancel(r.Context()), c.filter, c.cursor, c.dryRun)
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	view := deadChangeViewOf(&change)
	view.Dropped = &change.Dropped
	writeJSON(w, http.StatusOK, view)
}

func deadChangeViewOf(change *operator.DeadChange) *deadChangeView {
	return &deadChangeView{
		Matched: change.Matched, Looked: change.Looked, Full: change.Full, FlowFull: change.FlowFull + change.GroupFull, Disabled: change.Disabled,
		Next: change.Next, Waiting: change.Waiting,
	}
}
