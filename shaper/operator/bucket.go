package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// MaxReason bounds the reason of a pause in bytes.
const MaxReason = 500

// Bucket is the handle of a bucket. Its methods work on every bucket that Redis knows, also if it was removed from the configuration, or lives where
// another configuration has it. For others they return [shaper.ErrUnknownBucket]. Changes need an author: see [Operator.As].
type Bucket struct {
	op   *Operator
	name string
	bare bool // its lists have no payloads
}

// Bucket returns the handle of a bucket. It does not ask Redis whether the bucket exists.
func (o *Operator) Bucket(name string) Bucket { return Bucket{op: o, name: name} }

// WithoutPayloads returns the same bucket, whose lists of jobs and dead letters leave out the payloads.
func (b Bucket) WithoutPayloads() Bucket {
	b.bare = true
	return b
}

// Settings returns the settings of a bucket that is configured here, or [shaper.ErrUnknownBucket].
func (b Bucket) Settings() (shaper.Bucket, error) {
	found, err := b.op.store.Bucket(b.name)
	if err != nil {
		return shaper.Bucket{}, err
	}
	return *found.Own(), nil
}

// Info returns the numbers of the bucket, in two round trips. Configured is false until a program has used the bucket.
func (b Bucket) Info(ctx context.Context) (BucketInfo, error) {
	infos, err := b.op.BucketInfos(ctx, b.name)
	if err != nil {
		return BucketInfo{}, err
	}
	return infos[0], nil
}

// errNoChange is the fault of a change without settings.
var errNoChange = errors.New("nothing is changed: name a setting and its value")

// checkReason checks the reason of a pause.
func checkReason(bucket, reason string) error {
	if !utf8.ValidString(reason) || len(reason) > MaxReason {
		return &InvalidChangeError{bucket, fmt.Errorf("reason: want UTF-8 text of at most %d bytes", MaxReason)}
	}
	return nil
}

// InvalidChangeError says that a change does not fit; nothing was changed. Each line of its text begins with the setting.
type InvalidChangeError struct {
	Bucket string
	Err    error
}

func (e *InvalidChangeError) Error() string {
	return fmt.Sprintf("bucket %q: %s", e.Bucket, strings.ReplaceAll(e.Err.Error(), "\n", "; "))
}
func (e *InvalidChangeError) Unwrap() error { return e.Err }

// Pause stops departures from a bucket until [Bucket.Resume]: no process claims from now on. Jobs that are claimed already are sent, within
// the 200 ms that dispatchers look ahead. The bucket still admits jobs until it is full; leases, outcomes and retries go on. Pausing a paused bucket
// changes the reason. One round trip.
func (b Bucket) Pause(ctx context.Context, reason string) error {
	o, bucket := b.op, b.name
	if err := checkReason(bucket, reason); err != nil {
		return err
	}
	r, err := o.control(ctx, bucket, metrics.ActionPause, reason)
	if err != nil {
		return err
	}
	_, since := r.Int(), r.Int()
	if r.Err() == nil {
		o.note(ctx, bucket, metrics.ActionPause, "reason", reason, "before", store.PauseText(since), "after", "paused")
	}
	return r.Err()
}

// Resume lets a bucket run again and reports whether it was paused. It continues at its pace: it may send its burst at once, as after any quiet time.
// One round trip.
func (b Bucket) Resume(ctx context.Context) (was bool, err error) {
	o, bucket := b.op, b.name
	r, err := o.control(ctx, bucket, metrics.ActionResume)
	if err != nil {
		return false, err
	}
	_, since := r.Int(), r.Int()
	if r.Err() == nil {
		o.noteIf(ctx, since > 0, "bucket", bucket, metrics.ActionResume, "before", store.PauseText(since), "after", "running")
	}
	return since > 0, r.Err()
}

// Set changes settings of a bucket over what configurations say, until [Bucket.Reset]. A new rate, faster or slower, is effective from the
// next slot on. A bound below the present number of jobs admits none until enough jobs have been sent. A max_in_flight that the configuration does
// not set rises with the rate and the burst. A patch that does not fit is an [*InvalidChangeError]. Two round trips.
func (b Bucket) Set(ctx context.Context, patch BucketPatch) ([]shaper.Change, error) {
	o, bucket := b.op, b.name
	if patch.IsZero() {
		return nil, &InvalidChangeError{bucket, errNoChange}
	}
	after, err := o.inForce(ctx, bucket)
	if err != nil {
		return nil, err
	}
	patch.apply(&after, changeable)
	if err := after.Validate(); err != nil {
		return nil, &InvalidChangeError{bucket, err}
	}
	if n, ok := patch.values[shaper.SettingMaxInFlight]; ok && n.IsZero() {
		return nil, &InvalidChangeError{bucket, fmt.Errorf("max_in_flight: 0: want 1 to %d, or reset it to have it as configured", shaper.MaxCapacity)}
	}
	return o.change(ctx, bucket, metrics.ActionSet, 2, patch.fields()...)
}

// Reset removes overrides of settings of a bucket; without settings, all of them. One round trip.
func (b Bucket) Reset(ctx context.Context, settings ...shaper.Setting) ([]shaper.Change, error) {
	o, bucket := b.op, b.name
	if len(settings) == 0 {
		settings = shaper.Settings()
	}
	fields, unknown := resetFields(changeable, settings)
	if unknown != "" {
		return nil, &InvalidChangeError{bucket, unknownSetting(string(unknown))}
	}
	return o.change(ctx, bucket, metrics.ActionReset, 1, fields...)
}

// resetFields returns the fields in Redis of settings, or the first one that is not among all.
func resetFields(all store.StoredSettings, settings []shaper.Setting) (fields []any, unknown shaper.Setting) {
	for _, setting := range settings {
		s := all.Find(setting)
		if s == nil {
			return nil, setting
		}
		for _, name := range s.Fields {
			fields = append(fields, name)
		}
	}
	return fields, ""
}

// change runs control.lua on settings of a bucket and returns the changes. One of step args is a field.
func (o *Operator) change(ctx context.Context, bucket, action string, step int, args ...any) ([]shaper.Change, error) {
	r, err := o.control(ctx, bucket, action, args...)
	if err != nil {
		return nil, err
	}
	_, _ = r.Int(), r.Int()
	changes, isChanged, err := readChanges(r, action, step, args)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: script control: %w", bucket, err)
	}
	o.noteIf(ctx, isChanged, "bucket", bucket, action, "changes", store.ChangesText(changes))
	return changes, nil
}

// NotifyChanged reports an operation that changed the bucket to the hooks that subscribe to [shaper.EventOperatorChanged]. One round trip.
func (b Bucket) NotifyChanged(ctx context.Context, operation string) error {
	_, err := b.op.control(ctx, b.name, "notify", operation)
	return err
}

// inForce returns the effective settings of a bucket, of those that can be changed.
func (o *Operator) inForce(ctx context.Context, bucket string) (shaper.Bucket, error) {
	if b, err := o.store.Bucket(bucket); err == nil {
		if err := o.store.Configure(ctx, b); err != nil && !errors.Is(err, shaper.ErrTagChanged) {
			return shaper.Bucket{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	k, err := o.keysOf(ctx, bucket)
	if err != nil {
		return shaper.Bucket{}, err
	}
	names := changeable.Fields()
	values, err := o.store.Redis.HMGet(ctx, k.Conf(), names...).Result()
	if err != nil {
		return shaper.Bucket{}, fmt.Errorf("bucket %q: read its settings: %w", bucket, err)
	}
	found := map[string]string{}
	for i, name := range names {
		if text, ok := values[i].(string); ok {
			found[name] = text
		}
	}
	if len(found) == 0 {
		return shaper.Bucket{}, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, bucket)
	}
	return readSettings(bucket, found), nil
}

// control runs control.lua.
func (o *Operator) control(ctx context.Context, bucket, action string, args ...any) (*lua.Reader, error) {
	return o.run(ctx, bucket, lua.Control, func(k store.Keys) []string { return k.Of(lua.Control) }, append([]any{store.WakeChannel, o.store.KeyName(bucket), action, o.by}, args...)...)
}

// run runs a script on a bucket that is configured here or known to Redis. A bucket that lives where another configuration has it obeys too, and
// takes the change along when it moves.
func (o *Operator) run(ctx context.Context, bucket string, script *lua.Script, keysOf func(store.Keys) []string, args ...any) (*lua.Reader, error) {
	if err := o.hasAuthor(); err != nil {
		return nil, err
	}
	if b, err := o.store.Bucket(bucket); err == nil {
		r, err := o.store.RunConfigured(ctx, b, script, keysOf(b.Keys), args...)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, shaper.ErrTagChanged) {
			return nil, fmt.Errorf("bucket %q: %w", bucket, err)
		}
	}
	if !admission.ValidName(bucket) {
		return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, bucket)
	}
	live, err := o.store.LiveKeys(ctx, bucket)
	if err != nil {
		return nil, err
	}
	reply, err := o.store.Run(ctx, script, keysOf(live[bucket]), args...)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	r := lua.NewReader(reply)
	if status := r.Int(); status != 0 && r.Err() == nil {
		return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, bucket)
	}
	return r, r.Err()
}

// keysOf returns the keys of a bucket. They have its levels by the configuration or, if it is not configured here, by Redis.
func (o *Operator) keysOf(ctx context.Context, bucket string) (store.Keys, error) {
	o.store.Strayed(ctx, bucket)
	b, err := o.store.Readable(ctx, bucket)
	if err != nil {
		return store.Keys{}, err
	}
	return b.Keys, nil
}

// CurrentName returns the name of the bucket that was renamed from the given one, as the configuration says, else the given name. It makes no
// round trip.
func (o *Operator) CurrentName(name string) string { return o.store.CurrentName(name) }

// note logs and counts what was done to a bucket.
func (o *Operator) note(ctx context.Context, bucket, action string, args ...any) {
	o.noteIf(ctx, true, "bucket", bucket, action, args...)
}

// noteIf logs and counts what was done to a bucket, or to a flow or group of it. Where nothing was to be changed, that is a line for debugging.
func (o *Operator) noteIf(ctx context.Context, isChanged bool, what, bucket, action string, args ...any) {
	if o.store.Known(bucket) != nil { // the names of others would be labels without a bound
		o.store.Metrics.CountAction(bucket, action)
	}
	args = append([]any{"bucket", bucket, "action", action, "by", o.by}, args...)
	switch {
	case !isChanged:
		o.store.Log.DebugContext(ctx, "an operator had nothing to change", args...)
	case what == "flow":
		o.store.Log.InfoContext(ctx, "an operator changed a flow", args...)
	case what == "group":
		o.store.Log.InfoContext(ctx, "an operator changed a group", args...)
	default:
		o.store.Log.InfoContext(ctx, "an operator changed a bucket", args...)
	}
}

// ErrNoFlows says that a bucket has no flows. Methods on flows return it. In a bucket with flows, any name of at most [shaper.MaxFlowBytes] names a
// flow.
var ErrNoFlows = errors.New("shaper: the bucket has no flows")

// Errors of methods on groups.
var (
	// ErrNoGroups says that a bucket has no groups. Methods on groups return it, and methods on flows of a group.
	ErrNoGroups = errors.New("shaper: the bucket has no groups")

	// ErrGroupNeeded says that a bucket has groups, and a flow was named without its group.
	ErrGroupNeeded = errors.New("shaper: the bucket has groups: name the flow's group")
)

// readChanges reads what control.lua has changed, and whether anything changed.
func readChanges(r *lua.Reader, action string, step int, args []any) (changes []shaper.Change, isChanged bool, err error) {
	before, after := map[string]string{}, map[string]string{}
	for i := 0; i < len(args); i += step {
		field := fmt.Sprint(args[i])
		before[field], after[field] = r.Text(), r.Text()
	}
	differs := map[string]bool{}
	for i := 0; i < len(args); i += step {
		differs[fmt.Sprint(args[i])] = r.Int() != 0
	}
	if r.Err() != nil {
		return nil, false, r.Err()
	}
	for i := range changeable {
		s := &changeable[i]
		if _, ok := before[s.Fields[0]]; !ok {
			continue
		}
		for _, field := range s.Fields {
			isChanged = isChanged || differs[field]
		}
		// A removed override is reported also if the configuration has the same value.
		if action == metrics.ActionSet || differs[s.Fields[0]] || differs[s.Fields[len(s.Fields)-1]] {
			changes = append(changes, shaper.Change{Setting: s.Name, Before: s.Text(before), After: s.Text(after)})
		}
	}
	return changes, isChanged, nil
}

// OpenBundle opens a bundle in the bucket, or completes an open one: see the method of [producer.Client].
//
// [producer.Client]: https://pkg.go.dev/github.com/tundish-io/tundish/shaper/producer#Client
func (b Bucket) OpenBundle(ctx context.Context, bundle shaper.Bundle) (shaper.BundleInfo, error) {
	return b.op.store.OpenBundle(ctx, b.name, &bundle)
}

// Bundle returns the state of a bundle of the bucket, or [shaper.ErrUnknownBundle]. One round trip.
func (b Bucket) Bundle(ctx context.Context, id string) (shaper.BundleInfo, error) {
	return b.op.store.Bundle(ctx, b.name, id)
}

// Plan returns the plan that a bucket obeys now, whatever is configured here. It is the zero value if the bucket sends at all times, at its own rate.
// Two round trips.
func (b Bucket) Plan(ctx context.Context) (plan schedule.Plan, err error) {
	k, err := b.op.keysOf(ctx, b.name)
	if err != nil {
		return plan, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.op.store.Timeout)
	defer cancel()
	text, err := b.op.store.Redis.HGet(ctx, k.Conf(), store.FieldPlan).Result()
	if err == redis.Nil || err == nil && text == "" { //nolint:errorlint // as the library has it
		return plan, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &plan)
	}
	if err != nil {
		return plan, fmt.Errorf("bucket %q: read its plan: %w", b.name, err)
	}
	return plan, nil
}
