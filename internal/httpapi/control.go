package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

const (
	maxControlBytes = 64 << 10

	// purgePatience is how long a request waits for a purge. The sweeper of a
	// dispatcher finishes a longer purge.
	purgePatience = 20 * time.Second
)

func (o *ops) controlRoutes() []route {
	admin := roles(RoleAdmin)
	return []route{
		{"PATCH", "/v1/buckets/{bucket}", setting(o.changeBucket), admin},
		{"DELETE", "/v1/buckets/{bucket}/overrides", resetting(o.changeBucket), admin},
		{"DELETE", "/v1/buckets/{bucket}/overrides/{setting}", resetting(o.changeBucket), admin},
		{"POST", "/v1/buckets/{bucket}/pause", o.pauseBucket, admin},
		{"POST", "/v1/buckets/{bucket}/resume", o.resumeBucket, admin},
		{"POST", "/v1/buckets/{bucket}/release", o.releaseBucket, admin},
		{"POST", "/v1/buckets/{bucket}/purge", o.purgeBucket, admin},
	}
}

// as returns the operator in the caller's name, to change buckets and pools with.
func (o *ops) as(r *http.Request) operator.Author {
	if name := keyName(r); name != "" {
		return o.buckets.As("key " + name)
	}
	return o.buckets.As("a program on the dispatcher's machine") // the guard admits no others
}

// change makes the change of an operator, even if the client does not wait for it, and
// answers the bucket after it.
func (o *ops) change(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, b operator.BucketControl) error) {
	bucket := r.PathValue("bucket")
	if err := do(context.WithoutCancel(r.Context()), o.as(r).Bucket(bucket)); err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	o.showBucket(w, r)
}

// controlFault makes a fault of the error of a change.
func (o *ops) controlFault(r *http.Request, bucket string, err error) *fault {
	if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
		return invalid(patchFaults(bad.Err))
	}
	if errors.Is(err, shaper.ErrUnknownBucket) {
		return newFault(codeUnknownBucket, "neither the configuration nor Redis knows a bucket %q", bucket)
	}
	switch {
	case errors.Is(err, operator.ErrNoFlows):
		return newFault(codeNoFlows, "bucket %q is configured without flows", bucket)
	case errors.Is(err, operator.ErrNoGroups):
		return newFault(codeNoGroups, "bucket %q is configured without groups", bucket)
	case errors.Is(err, operator.ErrGroupNeeded):
		return invalid([]*shaper.FieldError{{Field: "group", Reason: "is missing: flows of this bucket are in groups, so name the flow's as &group="}})
	}
	f := o.store.of(r, err)
	if f.Code == codeStoreUnavailable && elsewhere(err) == "" {
		f.Detail = fmt.Sprintf("Redis is not reachable or too slow: bucket %q may be changed; send the same request again, which is safe", bucket)
	}
	return f
}

// pauseBucket stops departures: POST /v1/buckets/{bucket}/pause.
func (o *ops) pauseBucket(w http.ResponseWriter, r *http.Request) {
	reason, f := readReason(w, r)
	if f != nil {
		f.write(w, r)
		return
	}
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) error {
		return b.Pause(ctx, reason)
	})
}

// readReason reads why something is paused, from a body that may be missing.
func readReason(w http.ResponseWriter, r *http.Request) (reason string, f *fault) {
	if r.ContentLength == 0 {
		return "", nil
	}
	f = readObject(w, r, func(d *jobDecoder, name string, value []byte) {
		if name == "reason" {
			reason, _ = d.text(name, value)
		} else {
			d.fail(name, "is not taken here: want reason")
		}
	})
	return reason, f
}

// resumeBucket lets a bucket run again: POST /v1/buckets/{bucket}/resume.
func (o *ops) resumeBucket(w http.ResponseWriter, r *http.Request) {
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) error {
		_, err := b.Resume(ctx)
		return err
	})
}

// releaseBucket ends a hold and an open circuit breaker of a bucket: POST /v1/buckets/{bucket}/release.
func (o *ops) releaseBucket(w http.ResponseWriter, r *http.Request) {
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) error {
		_, err := b.Release(ctx)
		return err
	})
}

// settable is a bucket or a pool.
type settable interface {
	Set(ctx context.Context, patch operator.BucketPatch) ([]shaper.Change, error)
	Reset(ctx context.Context, settings ...shaper.Setting) ([]shaper.Change, error)
	Release(ctx context.Context) (was bool, err error)
}

// changer makes the change of an operator to the bucket or pool that a request names, and answers the bucket or pool after it.
type changer func(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, s settable) error)

func (o *ops) changeBucket(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, s settable) error) {
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) error { return do(ctx, b) })
}

// setting changes settings of a bucket or a pool until they are reset: PATCH of it.
func setting(change changer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		patch, f := readSettings(w, r)
		if f != nil {
			f.write(w, r)
			return
		}
		change(w, r, func(ctx context.Context, s settable) error {
			_, err := s.Set(ctx, patch)
			return err
		})
	}
}

// resetting lets settings be as configured again: DELETE of …/overrides and …/overrides/{setting}.
func resetting(change changer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var settings []shaper.Setting
		if name := r.PathValue("setting"); name != "" {
			settings = append(settings, shaper.Setting(name))
		}
		change(w, r, func(ctx context.Context, s settable) error {
			_, err := s.Reset(ctx, settings...)
			return err
		})
	}
}

// purgeView is the result of a purge.
type purgeView struct {
	Bucket string  `json:"bucket"`
	Flow   *string `json:"flow,omitempty"`  // only of a purge of one
	Group  *string `json:"group,omitempty"` // only of a purge of one, or of a flow in it
	Purged int64   `json:"purged"`
	Left   int64   `json:"left"` // moved aside, and removed by the sweeper
}

// purgeBucket drops all jobs that wait: POST /v1/buckets/{bucket}/purge.
func (o *ops) purgeBucket(w http.ResponseWriter, r *http.Request) {
	bucket := r.PathValue("bucket")
	options, f := readPurge(w, r, bucket, "the bucket's name")
	if f != nil {
		f.write(w, r)
		return
	}
	o.purge(w, r, purgeView{Bucket: bucket}, o.as(r).Bucket(bucket).Purge, options)
}

// readPurge reads the body of a purge, which has to confirm the name of its object.
func readPurge(w http.ResponseWriter, r *http.Request, name, what string) (options operator.PurgeOptions, f *fault) {
	confirm, given := "", false
	f = readObject(w, r, func(d *jobDecoder, member string, value []byte) {
		switch member {
		case "confirm":
			confirm, given = d.text(member, value)
		case "keep_later":
			if options.KeepLater = string(value) == "true"; !options.KeepLater && string(value) != "false" {
				d.fail(member, "want true or false")
			}
		default:
			d.fail(member, "is not taken here: want confirm or keep_later")
		}
	})
	if f == nil && (!given || confirm != name) {
		f = invalid([]*shaper.FieldError{{Field: "confirm", Reason: fmt.Sprintf("want %q, %s: a purge drops jobs for good", name, what)}})
	}
	return options, f
}

// purge runs a purge and answers its result.
func (o *ops) purge(w http.ResponseWriter, r *http.Request, view purgeView, do func(context.Context, operator.PurgeOptions) (operator.Purged, error), options operator.PurgeOptions) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), purgePatience)
	defer cancel()
	purged, err := do(ctx, options)
	view.Purged, view.Left = purged.Jobs, purged.Left
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, view)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && purged.Left > 0:
		writeJSON(w, http.StatusAccepted, view)
	default:
		f := o.controlFault(r, view.Bucket, err)
		if purged.Left > 0 {
			f.Detail += fmt.Sprintf("; %d jobs are dropped, none of the others departs, and the sweeper removes them", purged.Jobs)
		}
		f.write(w, r)
	}
}

// readObject reads a JSON object, strictly, and calls member with each of its
// members that is not null.
func readObject(w http.ResponseWriter, r *http.Request, member func(d *jobDecoder, name string, value []byte)) *fault {
	return readBodyBy(w, r, func(d *jobDecoder, body []byte) bool { return d.object(body, member) })
}

// readBodyBy reads a JSON object by a function that reports whether it is one.
func readBodyBy(w http.ResponseWriter, r *http.Request, read func(d *jobDecoder, body []byte) bool) *fault {
	if _, f := mediaType(r, typeJSON, typeMergePatch); f != nil {
		return f
	}
	body, f := readBody(w, r, maxControlBytes, "no more is wanted here")
	if f != nil {
		return f
	}
	if err := checkJSON(body); err != nil {
		return invalid(fieldErrors(err))
	}
	var d jobDecoder // for its readers of values
	if !read(&d, body) {
		return invalid(fieldErrors(bodyFault("want a JSON object")))
	}
	if err := errors.Join(d.errs...); err != nil {
		return invalid(fieldErrors(err))
	}
	return nil
}

// object calls member with each member of an object that is neither null nor
// given twice.
func (d *jobDecoder) object(data []byte, member func(d *jobDecoder, name string, value []byte)) (isObject bool) {
	return eachMember(data, func(name string, value []byte, again bool) bool {
		switch {
		case again:
			d.fail(name, "is given twice")
		case isNull(value):
			d.fail(name, "is null: leave it out")
		default:
			member(d, name, value)
		}
		return len(d.errs) < maxFieldFault
	})
}

// readSettings reads the body of a PATCH: settings as in the configuration.
func readSettings(w http.ResponseWriter, r *http.Request) (operator.BucketPatch, *fault) {
	var patch operator.BucketPatch
	f := readObject(w, r, func(d *jobDecoder, name string, value []byte) {
		if name != "shed" {
			d.setting(&patch, name, value)
			return
		}
		if !d.object(value, func(d *jobDecoder, name string, value []byte) { d.setting(&patch, "shed."+name, value) }) {
			d.fail(name, "want an object with low, normal or high")
		}
	})
	if f == nil && patch.IsZero() {
		f = invalid([]*shaper.FieldError{{Field: bodyField, Reason: "changes nothing: name a setting and its value"}})
	}
	return patch, f
}

// setting reads one value: text of a rate, else a number.
func (d *jobDecoder) setting(patch *operator.BucketPatch, name string, value []byte) {
	setting, text := shaper.Setting(name), string(value)
	if setting == shaper.SettingRate {
		given := false
		if text, given = d.text(name, value); !given {
			return
		}
	}
	if err := patch.Put(setting, text); err != nil {
		field, reason, _ := strings.Cut(err.Error(), ": ")
		d.fail(field, reason)
	}
}
