package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Bounds of one request, as the API has them.
const (
	idsAtOnce     = 200  // dead letters by id
	redriveAtOnce = 1000 // dead letters of all
)

// deadChoice chooses all dead letters that a filter matches; the zero filter matches all.
func deadChoice(bucket string, filter *operator.DeadFilter, cursor string, dryRun bool) httpapi.DeadChoice {
	return httpapi.DeadChoice{
		BucketName: httpapi.BucketName{Bucket: bucket}, Filter: *filter, All: *filter == operator.DeadFilter{}, Cursor: cursor, DryRun: dryRun,
	}
}

// redrive redrives dead letters. With an error it also returns what was done before.
func (c *api) redrive(ctx context.Context, in httpapi.DeadRedrive) (operator.DeadChange, error) {
	view, err := call(ctx, c, httpapi.RedriveDead, in)
	change, _, err := deadChange(view, in.Bucket, err)
	return change, err
}

// drop drops dead letters. With an error it also returns what was done before.
func (c *api) drop(ctx context.Context, in httpapi.DeadChoice) (change operator.DeadChange, notDead []opsview.NotDead, err error) {
	in.Confirm = in.Bucket
	view, err := call(ctx, c, httpapi.DropDead, in)
	return deadChange(view, in.Bucket, err)
}

func deadChange(view *opsview.DeadChange, bucket string, err error) (operator.DeadChange, []opsview.NotDead, error) {
	if view == nil {
		view = &opsview.DeadChange{}
	}
	if p, ok := errors.AsType[*problem](err); ok {
		view.Moved, view.Dropped = &p.Moved, &p.Dropped
	}
	return operator.DeadChange{Matched: view.Matched, Looked: view.Looked, Dropped: deref(view.Dropped), Next: view.Next, Waiting: view.Waiting, Redriven: operator.Redriven{
		Moved: deref(view.Moved), Full: view.Full, FlowFull: view.FlowFull, GroupFull: view.GroupFull, Disabled: view.Disabled, Unknown: view.Unknown,
	}}, view.NotDead, named(err, "bucket", bucket)
}

// redriveFound does [operator.DeadControl.RedriveFound] by requests.
func (c *api) redriveFound(bucket string) deadChanges {
	return func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error) {
		return c.redrive(ctx, httpapi.DeadRedrive{DeadChoice: deadChoice(bucket, &filter, cursor, dryRun)})
	}
}

// dropFound does [operator.DeadControl.DropFound] by requests.
func (c *api) dropFound(bucket string) deadChanges {
	return func(ctx context.Context, filter operator.DeadFilter, cursor string, dryRun bool) (operator.DeadChange, error) {
		change, _, err := c.drop(ctx, deadChoice(bucket, &filter, cursor, dryRun))
		return change, err
	}
}

// redriveIDs redrives dead letters by their ids.
func (c *api) redriveIDs(ctx context.Context, bucket string, ids []string) (sum operator.Redriven, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		change, err := c.redrive(ctx, httpapi.DeadRedrive{DeadChoice: httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: bucket}, IDs: some}})
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
		change, err := c.redrive(ctx, httpapi.DeadRedrive{DeadChoice: httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: bucket}, All: true}, Limit: n})
		if sum.Add(change.Redriven); err != nil || change.Moved < n {
			return sum, err
		}
	}
	return sum, nil
}

// dropIDs drops dead letters by their ids, and returns the jobs that are none.
func (c *api) dropIDs(ctx context.Context, bucket string, ids []string) (dropped int, left []opsview.NotDead, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		change, notDead, err := c.drop(ctx, httpapi.DeadChoice{BucketName: httpapi.BucketName{Bucket: bucket}, IDs: some})
		dropped, left = dropped+change.Dropped, append(left, notDead...)
		if err != nil {
			return dropped, left, err
		}
	}
	return dropped, left, nil
}
