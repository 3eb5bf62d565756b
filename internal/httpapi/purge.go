package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// purgeOf says what to purge.
type purgeOf struct {
	PurgeRequest
	view    opsview.Purge
	name    string // to confirm
	what    string // "bucket", "flow" or "group"
	purge   func(context.Context, operator.PurgeOptions) (operator.Purged, error)
	waiting func(ctx context.Context, keepLater bool) (int64, error) // how many jobs a purge would drop
}

// purgeBucket drops all jobs that wait.
func (o *ops) purgeBucket(r *http.Request, in *BucketPurge) (*opsview.Purge, error) {
	b := o.as(r).Bucket(in.Bucket)
	return o.purge(r, purgeOf{
		PurgeRequest: in.PurgeRequest, view: opsview.Purge{Bucket: in.Bucket}, name: in.Bucket, what: "bucket", purge: b.Purge,
		waiting: func(ctx context.Context, keepLater bool) (int64, error) {
			names, err := o.names(ctx)
			if err == nil && !slices.Contains(names, in.Bucket) {
				err = shaper.ErrUnknownBucket
			}
			if err != nil {
				return 0, err
			}
			info, err := b.Info(ctx)
			if keepLater {
				info.Later = 0
			}
			return info.Waiting + info.Later, err
		},
	})
}

// purge drops jobs, or counts them. A purge has to repeat the name of its object.
func (o *ops) purge(r *http.Request, of purgeOf) (*opsview.Purge, error) {
	if of.DryRun {
		n, err := of.waiting(r.Context(), of.KeepLater)
		of.view.Matched = &n
		return &of.view, err
	}
	if of.Confirm == nil || *of.Confirm != of.name {
		return nil, invalid([]*shaper.FieldError{{Field: "confirm", Reason: fmt.Sprintf("want %q, the %s's name: a purge drops jobs for good", of.name, of.what)}})
	}
	ctx, cancel := o.patient(r)
	defer cancel()
	purged, err := of.purge(ctx, operator.PurgeOptions{KeepLater: of.KeepLater})
	of.view.Purged, of.view.Left = purged.Jobs, purged.Left
	if err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && purged.Left > 0 { // the sweeper goes on
		of.view.Unfinished = err != nil
		return &of.view, nil
	}
	return nil, o.partial(r, err, func(p *problem) {
		if p.Purged = purged.Jobs; purged.Left > 0 {
			p.Detail += fmt.Sprintf("; %d jobs are dropped, none of the others departs, and the sweeper removes them", purged.Jobs)
		}
	})
}
