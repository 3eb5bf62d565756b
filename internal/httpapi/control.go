package httpapi

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (o *ops) changeBucket(r *http.Request, name string, do func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error)) (*opsview.Bucket, error) {
	return change(r, func(ctx context.Context) (opsview.Outcome, error) { return do(ctx, o.as(r).Bucket(name)) },
		func(r *http.Request, outcome opsview.Outcome) (*opsview.Bucket, error) {
			return o.bucketAfter(r, name, outcome)
		})
}

// settable is a bucket or a pool.
type settable interface {
	Set(ctx context.Context, patch operator.BucketPatch) ([]shaper.Change, error)
	Reset(ctx context.Context, settings ...shaper.Setting) ([]shaper.Change, error)
}

// set changes settings of a bucket or a pool until they are reset.
func set(ctx context.Context, of settable, body []byte) (opsview.Outcome, error) {
	patch, f := readSettings(body)
	if f != nil {
		return opsview.Outcome{}, f
	}
	changes, err := of.Set(ctx, patch)
	return opsview.Outcome{Changes: changes}, err
}

// reset resets settings of a bucket or a pool to the configured values: all of them, if none is named.
func reset(ctx context.Context, of settable, names []string) (opsview.Outcome, error) {
	settings := make([]shaper.Setting, len(names))
	for i, name := range names {
		settings[i] = shaper.Setting(name)
	}
	changes, err := of.Reset(ctx, settings...)
	changed := len(changes) > 0
	return opsview.Outcome{Changed: &changed, Changes: changes}, err
}

func (o *ops) setBucket(r *http.Request, in *BucketSettings) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		return set(ctx, b, in.Settings)
	})
}

func (o *ops) resetBucket(r *http.Request, in *BucketResets) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		return reset(ctx, b, in.Settings)
	})
}

func (o *ops) resetSetting(r *http.Request, in *BucketReset) (*opsview.Bucket, error) {
	return o.resetBucket(r, &BucketResets{in.BucketName, []string{in.Setting}})
}

func (o *ops) pauseBucket(r *http.Request, in *BucketPause) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		return opsview.Outcome{}, b.Pause(ctx, in.Reason)
	})
}

func (o *ops) resumeBucket(r *http.Request, in *BucketName) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		return outcomeOf(b.Resume(ctx))
	})
}

// releaseBucket ends a hold and an open circuit breaker of a bucket and, if requested, of all its flows.
func (o *ops) releaseBucket(r *http.Request, in *BucketRelease) (*opsview.Bucket, error) {
	var released opsview.ReleasedFlows
	view, err := o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.Bucket) (opsview.Outcome, error) {
		if !in.AllFlows {
			return outcomeOf(b.Release(ctx))
		}
		within, cancel := o.patient(r)
		defer cancel()
		flows, err := b.ReleaseFlows(within)
		more := err != nil && errors.Is(within.Err(), context.DeadlineExceeded)
		if err != nil && !more {
			return opsview.Outcome{}, err
		}
		was, err := b.Release(ctx)
		released = opsview.ReleasedFlows{FlowsReleased: &flows, More: more}
		return opsview.OutcomeOf(was || flows > 0), err
	})
	if err != nil {
		return nil, err
	}
	view.ReleasedFlows = released
	return view, nil
}

var keysOfBuckets = setting.Changes(reflect.TypeFor[shaper.Bucket]())

// readSettings reads settings as in the configuration.
func readSettings(body []byte) (operator.BucketPatch, *fault) {
	var patch operator.BucketPatch
	f := readBytesBy(body, func(d *jobDecoder, body []byte) bool {
		return d.object(body, func(d *jobDecoder, name string, value []byte) {
			d.setting(keysOfBuckets, name, value, func(path, text string) error { return patch.Put(shaper.Setting(path), text) })
		})
	})
	if f == nil && patch.IsZero() {
		f = invalid([]*shaper.FieldError{{Field: bodyField, Reason: "changes nothing: name a setting and its value"}})
	}
	return patch, f
}

// setting reads the value or the table at a path, and calls put with each value: a number unchanged, any other as text.
func (d *jobDecoder) setting(keys []*setting.Key, path string, value []byte, put func(path, text string) error) {
	text, given := string(value), true
	var names []string // of the keys in the table
	for _, k := range keys {
		if name, isIn := strings.CutPrefix(k.Path, path+"."); isIn {
			names = append(names, name)
		}
		if k.Path == path && !k.IsNumber() {
			text, given = d.text(path, value)
		}
	}
	switch isTable := len(names) > 0; {
	case isTable && !d.object(value, func(d *jobDecoder, name string, value []byte) { d.setting(keys, path+"."+name, value, put) }):
		d.fail(path, "want an object with "+anyOf(names))
	case !isTable && given:
		d.failed(put(path, text))
	}
}

// failed records an error of a patch, if there is one: it begins with the field.
func (d *jobDecoder) failed(err error) {
	if err != nil {
		field, reason, _ := strings.Cut(err.Error(), ": ")
		d.fail(field, reason)
	}
}
