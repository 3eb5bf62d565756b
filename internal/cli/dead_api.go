package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Bounds of one request, as the API has them.
const (
	idsAtOnce     = 200  // dead letters that are named
	redriveAtOnce = 1000 // dead letters of all
)

// filterQuery is a filter as the API takes it in a query.
func filterQuery(f *operator.DeadFilter) url.Values {
	query := url.Values{}
	set := func(name, text string, given bool) {
		if given {
			query.Set(name, text)
		}
	}
	set("cause", f.Cause, f.Cause != "")
	set("reason", f.Reason, f.Reason != "")
	set("status", strconv.Itoa(f.Status), f.Status != 0)
	set("since", f.Since.UTC().Format(time.RFC3339Nano), !f.Since.IsZero())
	set("until", f.Until.UTC().Format(time.RFC3339Nano), !f.Until.IsZero())
	set("q", f.Text, f.Text != "")
	if f.Flow != nil {
		query.Set("flow", *f.Flow)
	}
	if f.Group != nil {
		query.Set("group", *f.Group)
	}
	return query
}

// deadBody is the body of a change of all dead letters that a filter means; the zero filter means all.
func deadBody(f *operator.DeadFilter, cursor string, dryRun bool) map[string]any {
	body := map[string]any{"dry_run": dryRun}
	if cursor != "" {
		body["cursor"] = cursor
	}
	filter := map[string]any{}
	for name, values := range filterQuery(f) {
		filter[name] = values[0]
	}
	if f.Status != 0 {
		filter["status"] = f.Status
	}
	if len(filter) == 0 {
		body["all"] = true
	} else {
		body["filter"] = filter
	}
	return body
}

// changeDead asks for a change of dead letters. With an error it returns what was done before.
func (c *api) changeDead(ctx context.Context, method, bucket, below string, body map[string]any) (change operator.DeadChange, notDead []opsview.NotDead, err error) {
	var view opsview.DeadChange
	err = c.call(ctx, method, apiPath("buckets", bucket, "dead")+below, nil, body, &view)
	if p, ok := errors.AsType[*problem](err); ok {
		view.Moved, view.Dropped = &p.Moved, &p.Dropped
	}
	change = operator.DeadChange{Matched: view.Matched, Looked: view.Looked, Dropped: deref(view.Dropped), Next: view.Next, Waiting: view.Waiting, Redriven: operator.Redriven{
		Moved: deref(view.Moved), Full: view.Full, FlowFull: view.FlowFull, GroupFull: view.GroupFull, Disabled: view.Disabled, Unknown: view.Unknown,
	}}
	return change, view.NotDead, named(err, "bucket", bucket)
}

// redriveFound makes of requests what [operator.DeadControl.RedriveFound] does.
func (c *api) redriveFound(bucket string) deadChanges {
	return func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error) {
		change, _, err := c.changeDead(ctx, http.MethodPost, bucket, "/redrive", deadBody(&filter, cursor, dryRun))
		return change, err
	}
}

// dropFound makes of requests what [operator.DeadControl.DropFound] does.
func (c *api) dropFound(bucket string) deadChanges {
	return func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error) {
		body := deadBody(&filter, cursor, dryRun)
		body["confirm"] = bucket
		change, _, err := c.changeDead(ctx, http.MethodDelete, bucket, "", body)
		return change, err
	}
}

// redriveIDs redrives dead letters by their ids.
func (c *api) redriveIDs(ctx context.Context, bucket string, ids []string) (sum operator.Redriven, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		change, _, err := c.changeDead(ctx, http.MethodPost, bucket, "/redrive", map[string]any{"ids": some})
		if sum.Add(change.Redriven); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// redriveSome redrives limit dead letters, the oldest first.
func (c *api) redriveSome(ctx context.Context, bucket string, limit int) (sum operator.Redriven, err error) {
	for sum.Moved < limit {
		n := min(limit-sum.Moved, redriveAtOnce)
		change, _, err := c.changeDead(ctx, http.MethodPost, bucket, "/redrive", map[string]any{"all": true, "limit": n})
		if sum.Add(change.Redriven); err != nil || change.Moved < n {
			return sum, err
		}
	}
	return sum, nil
}

// dropIDs drops dead letters by their ids, and returns the jobs that are none.
func (c *api) dropIDs(ctx context.Context, bucket string, ids []string) (dropped int, left []opsview.NotDead, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		change, notDead, err := c.changeDead(ctx, http.MethodDelete, bucket, "", map[string]any{"ids": some})
		dropped, left = dropped+change.Dropped, append(left, notDead...)
		if err != nil {
			return dropped, left, err
		}
	}
	return dropped, left, nil
}
