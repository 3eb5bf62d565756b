package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	settings "github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

const maxControlBytes = 64 << 10

// as returns the operator in the caller's name, to change buckets and pools with.
func (o *ops) as(r *http.Request) operator.Author {
	if name := keyName(r); name != "" {
		return o.buckets.As("key " + name)
	}
	return o.buckets.As(o.author)
}

// bucketChange is a change of a bucket by an operator.
type bucketChange func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error)

// change makes the change of an operator, even if the client does not wait for it, and
// answers the bucket after it.
func (o *ops) change(w http.ResponseWriter, r *http.Request, do bucketChange) {
	bucket := r.PathValue("bucket")
	outcome, err := do(context.WithoutCancel(r.Context()), o.as(r).Bucket(bucket))
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	o.answerBucket(w, r, outcome)
}

// patience is how long a request waits for a change of many jobs or flows. The sweeper of a
// dispatcher finishes a longer purge.
const patience = 20 * time.Second

// patient is the context of a change that goes on if the client does not wait for it, within bounds. A command that is its own
// server has all the time, and stops when it is interrupted.
func (o *ops) patient(r *http.Request) (context.Context, context.CancelFunc) {
	if o.local {
		return context.WithCancel(r.Context())
	}
	return context.WithTimeout(context.WithoutCancel(r.Context()), patience)
}

// outcomeOf is the outcome of a change that reports whether there was something to change.
func outcomeOf(was bool, err error) (opsview.Outcome, error) { return opsview.OutcomeOf(was), err }

// controlFault makes a fault of the error of a change.
func (o *ops) controlFault(r *http.Request, bucket string, err error) *fault {
	if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
		return invalid(patchFaults(bad.Err))
	}
	if errors.Is(err, shaper.ErrUnknownBucket) {
		return o.unknownBucket(r, bucket)
	}
	switch {
	case errors.Is(err, operator.ErrNoFlows):
		return newFault(codeNoFlows, "bucket %q: the bucket has no flows: it is configured without [buckets.flow]", bucket)
	case errors.Is(err, operator.ErrNoGroups):
		return newFault(codeNoGroups, "bucket %q: the bucket has no groups: it is configured without [buckets.group]", bucket)
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
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return opsview.Outcome{}, b.Pause(ctx, reason)
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
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return outcomeOf(b.Resume(ctx))
	})
}

// releaseBucket ends a hold and an open circuit breaker of a bucket, and with ?all_flows=true those of its flows too:
// POST /v1/buckets/{bucket}/release.
func (o *ops) releaseBucket(w http.ResponseWriter, r *http.Request) {
	all := r.URL.Query().Get("all_flows") == "true"
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		if !all {
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
		outcome := opsview.OutcomeOf(was || flows > 0)
		outcome.FlowsReleased, outcome.More = &flows, more
		return outcome, err
	})
}

// settable is a bucket or a pool.
type settable interface {
	Set(ctx context.Context, patch operator.BucketPatch) ([]shaper.Change, error)
	Reset(ctx context.Context, settings ...shaper.Setting) ([]shaper.Change, error)
	Release(ctx context.Context) (was bool, err error)
}

// changer makes the change of an operator to the bucket or pool that a request names, and answers the bucket or pool after it.
type changer func(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, s settable) (opsview.Outcome, error))

func (o *ops) changeBucket(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, s settable) (opsview.Outcome, error)) {
	o.change(w, r, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) { return do(ctx, b) })
}

// setting changes settings of a bucket or a pool until they are reset: PATCH of it.
func setting(change changer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		patch, f := readSettings(w, r)
		if f != nil {
			f.write(w, r)
			return
		}
		change(w, r, func(ctx context.Context, s settable) (opsview.Outcome, error) {
			changes, err := s.Set(ctx, patch)
			return opsview.Outcome{Changes: changes}, err
		})
	}
}

// resetting lets settings be as configured again: DELETE of …/overrides, of …/overrides?setting= and …/overrides/{setting}.
func resetting(change changer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		names := r.URL.Query()["setting"]
		if name := r.PathValue("setting"); name != "" {
			names = []string{name}
		}
		settings := make([]shaper.Setting, len(names))
		for i, name := range names {
			settings[i] = shaper.Setting(name)
		}
		change(w, r, func(ctx context.Context, s settable) (opsview.Outcome, error) {
			changes, err := s.Reset(ctx, settings...)
			return opsview.Outcome{Changes: changes}, err
		})
	}
}

// readObject reads a JSON object, strictly, and calls member with each of its
// members that is not null.
func readObject(w http.ResponseWriter, r *http.Request, member func(d *jobDecoder, name string, value []byte)) *fault {
	return readBodyBy(w, r, maxControlBytes, func(d *jobDecoder, body []byte) bool { return d.object(body, member) })
}

// readBodyBy reads a JSON object by a function that reports whether it is one.
func readBodyBy(w http.ResponseWriter, r *http.Request, most int64, read func(d *jobDecoder, body []byte) bool) *fault {
	if _, f := mediaType(r, typeJSON, typeMergePatch); f != nil {
		return f
	}
	body, f := readBody(w, r, most, "no more is wanted here")
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

var keysOfBuckets = settings.Changes(reflect.TypeFor[shaper.Bucket]())

// readSettings reads the body of a PATCH: settings as in the configuration.
func readSettings(w http.ResponseWriter, r *http.Request) (operator.BucketPatch, *fault) {
	var patch operator.BucketPatch
	f := readObject(w, r, func(d *jobDecoder, name string, value []byte) {
		d.setting(keysOfBuckets, name, value, func(path, text string) error { return patch.Put(shaper.Setting(path), text) })
	})
	if f == nil && patch.IsZero() {
		f = invalid([]*shaper.FieldError{{Field: bodyField, Reason: "changes nothing: name a setting and its value"}})
	}
	return patch, f
}

// setting reads what stands at a path, a value or a table of them, and puts each value: a number as it stands there, else a text.
func (d *jobDecoder) setting(keys []*settings.Key, path string, value []byte, put func(path, text string) error) {
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

// failed notes an error of a patch, if there is one: it begins with the field.
func (d *jobDecoder) failed(err error) {
	if err != nil {
		field, reason, _ := strings.Cut(err.Error(), ": ")
		d.fail(field, reason)
	}
}

// anyOf lists names as a sentence does: low, normal or high.
func anyOf(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
