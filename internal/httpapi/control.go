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
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// as returns the operator in the caller's name, to change buckets and pools with.
func (o *ops) as(r *http.Request) operator.Author {
	if name := keyName(r); name != "" {
		return o.buckets.As("key " + name)
	}
	return o.buckets.As(o.author)
}

// change makes the change of an operator, even if the client does not wait for it, and answers the object after it.
func change[Done, Out any](r *http.Request, do func(ctx context.Context) (Done, error), after func(Done) (Out, error)) (out Out, err error) {
	done, err := do(context.WithoutCancel(r.Context()))
	if err != nil {
		return out, err
	}
	return after(done)
}

func (o *ops) changeBucket(r *http.Request, name string, do func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error)) (*opsview.Bucket, error) {
	return change(r, func(ctx context.Context) (opsview.Outcome, error) { return do(ctx, o.as(r).Bucket(name)) },
		func(outcome opsview.Outcome) (*opsview.Bucket, error) { return o.bucketAfter(r, name, outcome) })
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

// fault makes a fault of the error of an operation.
func (o *ops) fault(r *http.Request, err error) error {
	switch err.(type) { //nolint:errorlint // both are made here, and never wrapped
	case *fault, *problem:
		return err
	}
	if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
		return invalid(patchFaults(bad.Err))
	}
	if conflict, ok := errors.AsType[*operator.ScheduleConflictError](err); ok {
		return conflictFault(r, conflict)
	}
	bucket, pool, schedule := r.PathValue("bucket"), r.PathValue("pool"), r.PathValue("schedule")
	switch {
	case errors.Is(err, shaper.ErrUnknownBucket):
		return o.unknownBucket(r, bucket)
	case errors.Is(err, operator.ErrUnknownPool):
		return o.unknownPool(pool)
	case errors.Is(err, operator.ErrNoSchedule):
		return newFault(codeUnknownSchedule, "unknown schedule %q: GET /v1/schedules lists them", schedule)
	case errors.Is(err, operator.ErrNoFlows):
		return newFault(codeNoFlows, "bucket %q: the bucket has no flows: it is configured without [buckets.flow]", bucket)
	case errors.Is(err, operator.ErrNoGroups):
		return newFault(codeNoGroups, "bucket %q: the bucket has no groups: it is configured without [buckets.group]", bucket)
	case errors.Is(err, operator.ErrGroupNeeded):
		return invalid([]*shaper.FieldError{{Field: "group", Reason: "is missing: flows of this bucket are in groups, so name the flow's as &group="}})
	}
	f := o.store.of(r, err)
	if f.Code == codeStoreUnavailable && r.Method != http.MethodGet && elsewhere(err) == "" {
		what := fmt.Sprintf("bucket %q", bucket)
		switch {
		case pool != "":
			what = fmt.Sprintf("pool %q", pool)
		case schedule != "":
			what = fmt.Sprintf("schedule %q", schedule)
		}
		f.Detail = fmt.Sprintf("Redis is not reachable or too slow: %s may be changed; send the same request again, which is safe", what)
	}
	return f
}

// settings changes settings of a bucket or a pool until they are reset.
func settings(change func(context.Context, operator.BucketPatch) ([]shaper.Change, error), body []byte) func(context.Context) (opsview.Outcome, error) {
	return func(ctx context.Context) (opsview.Outcome, error) {
		patch, f := readSettings(body)
		if f != nil {
			return opsview.Outcome{}, f
		}
		changes, err := change(ctx, patch)
		return opsview.Outcome{Changes: changes}, err
	}
}

// resets lets settings of a bucket or a pool be as configured again: all of them, if none is named.
func resets(reset func(context.Context, ...shaper.Setting) ([]shaper.Change, error), names ...string) func(context.Context) (opsview.Outcome, error) {
	return func(ctx context.Context) (opsview.Outcome, error) {
		settings := make([]shaper.Setting, len(names))
		for i, name := range names {
			settings[i] = shaper.Setting(name)
		}
		changes, err := reset(ctx, settings...)
		return opsview.Outcome{Changes: changes}, err
	}
}

func (o *ops) setBucket(r *http.Request, in *BucketSettings) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return settings(b.Set, in.Settings)(ctx)
	})
}

func (o *ops) resetBucket(r *http.Request, in *BucketResets) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return resets(b.Reset, in.Settings...)(ctx)
	})
}

func (o *ops) resetSetting(r *http.Request, in *BucketReset) (*opsview.Bucket, error) {
	return o.resetBucket(r, &BucketResets{in.BucketName, []string{in.Setting}})
}

func (o *ops) pauseBucket(r *http.Request, in *BucketPause) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return opsview.Outcome{}, b.Pause(ctx, in.Reason)
	})
}

func (o *ops) resumeBucket(r *http.Request, in *BucketName) (*opsview.Bucket, error) {
	return o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
		return outcomeOf(b.Resume(ctx))
	})
}

// releaseBucket ends a hold and an open circuit breaker of a bucket, and of all its flows, if that is asked.
func (o *ops) releaseBucket(r *http.Request, in *BucketRelease) (*opsview.Bucket, error) {
	var released opsview.ReleasedFlows
	view, err := o.changeBucket(r, in.Bucket, func(ctx context.Context, b operator.BucketControl) (opsview.Outcome, error) {
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
	return readBytesBy(body, read)
}

// readBytesBy reads what is known to be JSON by a function that reports whether it is an object.
func readBytesBy(body []byte, read func(d *jobDecoder, body []byte) bool) *fault {
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

// setting reads what stands at a path, a value or a table of them, and puts each value: a number as it stands there, else a text.
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

// failed notes an error of a patch, if there is one: it begins with the field.
func (d *jobDecoder) failed(err error) {
	if err != nil {
		field, reason, _ := strings.Cut(err.Error(), ": ")
		d.fail(field, reason)
	}
}
