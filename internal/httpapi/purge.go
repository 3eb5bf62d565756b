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

// purgeOf is what is to be purged.
type purgeOf struct {
	view    opsview.Purge
	name    string // to confirm
	what    string // "bucket", "flow" or "group"
	purge   func(context.Context, operator.PurgeOptions) (operator.Purged, error)
	waiting func(ctx context.Context, keepLater bool) (int64, error) // how many jobs a purge would drop
}

// purgeBucket drops all jobs that wait: POST /v1/buckets/{bucket}/purge.
func (o *ops) purgeBucket(w http.ResponseWriter, r *http.Request) {
	bucket := r.PathValue("bucket")
	b := o.as(r).Bucket(bucket)
	o.purge(w, r, purgeOf{
		view: opsview.Purge{Bucket: bucket}, name: bucket, what: "bucket", purge: b.Purge,
		waiting: func(ctx context.Context, keepLater bool) (int64, error) {
			names, err := o.names(ctx)
			if err == nil && !slices.Contains(names, bucket) {
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

// purge drops jobs, or counts them, and answers the result.
func (o *ops) purge(w http.ResponseWriter, r *http.Request, of purgeOf) {
	options, dryRun, f := readPurge(w, r, &of)
	if f != nil {
		f.write(w, r)
		return
	}
	if dryRun {
		n, err := of.waiting(r.Context(), options.KeepLater)
		if err != nil {
			o.controlFault(r, of.view.Bucket, err).write(w, r)
			return
		}
		of.view.Matched = &n
		writeJSON(w, http.StatusOK, of.view)
		return
	}
	ctx, cancel := o.patient(r)
	defer cancel()
	purged, err := of.purge(ctx, options)
	of.view.Purged, of.view.Left = purged.Jobs, purged.Left
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, of.view)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && purged.Left > 0:
		writeJSON(w, http.StatusAccepted, of.view)
	default:
		f := o.controlFault(r, of.view.Bucket, err)
		if purged.Left > 0 {
			f.Detail += fmt.Sprintf("; %d jobs are dropped, none of the others departs, and the sweeper removes them", purged.Jobs)
		}
		p := f.problem(r)
		p.Purged = purged.Jobs
		p.write(w)
	}
}

// readPurge reads the body of a purge, which has to confirm the name of its object.
func readPurge(w http.ResponseWriter, r *http.Request, of *purgeOf) (options operator.PurgeOptions, dryRun bool, f *fault) {
	confirm, given := "", false
	f = readObject(w, r, func(d *jobDecoder, member string, value []byte) {
		switch member {
		case "confirm":
			confirm, given = d.text(member, value)
		case "keep_later":
			options.KeepLater = d.truth(member, value)
		case "dry_run":
			dryRun = d.truth(member, value)
		default:
			d.fail(member, "is not taken here: want confirm, keep_later or dry_run")
		}
	})
	if f == nil && !dryRun && (!given || confirm != of.name) {
		f = invalid([]*shaper.FieldError{{Field: "confirm", Reason: fmt.Sprintf("want %q, the %s's name: a purge drops jobs for good", of.name, of.what)}})
	}
	return options, dryRun, f
}

// truth reads true or false.
func (d *jobDecoder) truth(name string, value []byte) bool {
	if is := string(value); is != "true" && is != "false" {
		d.fail(name, "want true or false")
	}
	return string(value) == "true"
}
