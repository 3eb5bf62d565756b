package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Bounds of what an operator says.
const (
	MaxReason = 500 // bytes
	maxBy     = 128 // bytes; longer ones are cut
)

// Control changes at run time how buckets run: it pauses, resumes, changes
// settings and purges. All processes obey at once, because the change is in
// Redis, where every decision is made; a dispatcher that sleeps is woken. It
// holds across restarts, whatever configurations say, until it is taken back.
//
// It works on every bucket that Redis knows, also on one that has left the
// configuration, or lives where another configuration has it; [shaper.ErrUnknownBucket] for others. When Redis is down or too slow, a
// method returns an error after [producer.Config.Timeout] for each of its round trips, or
// at the deadline of ctx. Its outcome is unknown then, and it may be called again. It is
// safe for concurrent use. What it does is logged and counted.
type Control struct {
	store     *store.Store
	checkFlow func(bucket string, own *shaper.OwnDelivery) error
	by        string
	group     *string // of the flows that methods mean, see InGroup
}

// Control returns what changes buckets in the name of by: a person or a
// program. Whoever looks at a pause or a pin later sees it.
func (o *Operator) Control(by string) *Control {
	by = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(by, "?"))
	for len(by) > maxBy {
		_, size := utf8.DecodeLastRuneInString(by)
		by = by[:len(by)-size]
	}
	return &Control{store: o.store, checkFlow: o.checkFlow, by: by}
}

// InvalidChangeError says that a change does not fit; nothing was changed. The
// lines of its text begin with the setting.
type InvalidChangeError struct {
	Bucket string
	Err    error
}

func (e *InvalidChangeError) Error() string {
	return fmt.Sprintf("bucket %q: %s", e.Bucket, strings.ReplaceAll(e.Err.Error(), "\n", "; "))
}
func (e *InvalidChangeError) Unwrap() error { return e.Err }

// Pause stops departures from a bucket until [Control.Resume]: nothing is
// claimed from now on, in no process. What was claimed already goes out, within
// the 200 ms that dispatchers look ahead. Jobs are taken in until the bucket is
// full; leases, outcomes and retries go on as ever. Pausing what is paused
// changes the reason. One round trip.
func (c *Control) Pause(ctx context.Context, bucket, reason string) error {
	if !utf8.ValidString(reason) || len(reason) > MaxReason {
		return &InvalidChangeError{bucket, fmt.Errorf("reason: want UTF-8 text of at most %d bytes", MaxReason)}
	}
	r, err := c.control(ctx, bucket, metrics.ActionPause, reason)
	if err != nil {
		return err
	}
	_, since := r.Int(), r.Int()
	if r.Err() == nil {
		c.note(ctx, bucket, metrics.ActionPause, "reason", reason, "before", store.PauseText(since), "after", "paused")
	}
	return r.Err()
}

// Resume lets a bucket run again and reports whether it was paused. It goes on
// at its pace: what it may send at once is its burst, as after any quiet time.
// One round trip.
func (c *Control) Resume(ctx context.Context, bucket string) (was bool, err error) {
	r, err := c.control(ctx, bucket, metrics.ActionResume)
	if err != nil {
		return false, err
	}
	_, since := r.Int(), r.Int()
	if r.Err() == nil {
		c.note(ctx, bucket, metrics.ActionResume, "before", store.PauseText(since), "after", "running")
	}
	return since > 0, r.Err()
}

// Set changes settings of a bucket over what configurations say, until
// [Control.Reset]. A new rate holds from the next slot on, be it faster or
// slower; a bound that is lowered below what there is lets nobody in until
// enough has left. A patch that does not fit is an [*InvalidChangeError]. Two
// round trips.
func (c *Control) Set(ctx context.Context, bucket string, patch BucketPatch) ([]shaper.Change, error) {
	if patch.IsZero() {
		return nil, &InvalidChangeError{bucket, errors.New("nothing is changed: name a setting and its value")}
	}
	b, err := c.inForce(ctx, bucket)
	if err != nil {
		return nil, err
	}
	if err := patch.applied(b).Validate(); err != nil {
		return nil, &InvalidChangeError{bucket, err}
	}
	return c.change(ctx, bucket, metrics.ActionSet, patch.fields()...)
}

// Reset lets settings of a bucket be as configured again; without any, all of
// them. One round trip.
func (c *Control) Reset(ctx context.Context, bucket string, settings ...shaper.Setting) ([]shaper.Change, error) {
	if len(settings) == 0 {
		settings = shaper.Settings()
	}
	var fields []any
	for _, setting := range settings {
		names, ok := store.SettingFields[setting]
		if !ok {
			return nil, &InvalidChangeError{bucket, unknownSetting(string(setting))}
		}
		for _, name := range names {
			fields = append(fields, name)
		}
	}
	return c.change(ctx, bucket, metrics.ActionReset, fields...)
}

// change runs the script for fields and reads what it changed.
func (c *Control) change(ctx context.Context, bucket, action string, args ...any) ([]shaper.Change, error) {
	r, err := c.control(ctx, bucket, action, args...)
	if err != nil {
		return nil, err
	}
	_, _ = r.Int(), r.Int()
	step := 1
	if action == metrics.ActionSet {
		step = 2
	}
	changes, err := readChanges(r, action, step, args)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: script control: %w", bucket, err)
	}
	c.note(ctx, bucket, action, "changes", store.ChangesText(changes))
	return changes, nil
}

// inForce returns the settings of a bucket that can be changed, as they are in
// force.
func (c *Control) inForce(ctx context.Context, bucket string) (shaper.Bucket, error) {
	if b, err := c.store.Bucket(bucket); err == nil {
		if err := c.store.Configure(ctx, b); err != nil && !errors.Is(err, shaper.ErrTagChanged) {
			return shaper.Bucket{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.Timeout)
	defer cancel()
	k, err := c.keysOf(ctx, bucket)
	if err != nil {
		return shaper.Bucket{}, err
	}
	names := slices.Concat(store.FieldsOf(shaper.Settings())...)
	values, err := c.store.Redis.HMGet(ctx, k.Conf(), names...).Result()
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
func (c *Control) control(ctx context.Context, bucket, action string, args ...any) (*lua.Reader, error) {
	return c.run(ctx, bucket, lua.Control, store.Keys.ForControl, append([]any{store.WakeChannel, bucket, action, c.by}, args...)...)
}

// run runs a script on a bucket that is configured here or known to Redis. A bucket that lives where another
// configuration has it obeys too, and what it is told goes with it.
func (c *Control) run(ctx context.Context, bucket string, script *lua.Script, keysOf func(store.Keys) []string, args ...any) (*lua.Reader, error) {
	if b, err := c.store.Bucket(bucket); err == nil {
		r, err := c.store.RunConfigured(ctx, b, script, keysOf(b.Keys), args...)
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
	live, err := c.store.LiveKeys(ctx, bucket)
	if err != nil {
		return nil, err
	}
	reply, err := c.store.Run(ctx, script, keysOf(live[bucket]), args...)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	r := lua.NewReader(reply)
	if status := r.Int(); status != 0 && r.Err() == nil {
		return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, bucket)
	}
	return r, r.Err()
}

// keysOf are the keys of a bucket, which know how many levels it has, as the configuration says or,
// of one that is not configured here, as Redis knows.
func (c *Control) keysOf(ctx context.Context, bucket string) (store.Keys, error) {
	c.store.Strayed(ctx, bucket)
	b, err := c.store.Readable(ctx, bucket)
	if err != nil {
		return store.Keys{}, err
	}
	return b.Keys, nil
}

// note logs and counts what was done.
func (c *Control) note(ctx context.Context, bucket, action string, args ...any) {
	if c.store.Buckets[bucket] != nil { // the names of others would be labels without a bound
		c.store.Metrics.CountAction(bucket, action)
	}
	c.store.Log.InfoContext(ctx, "an operator changed a bucket", append([]any{"bucket", bucket, "action", action, "by", c.by}, args...)...)
}

// ErrNoFlows says that a bucket has no flows. All methods of [Control] on flows return
// it; in a bucket that has some, any name of at most [shaper.MaxFlowBytes] is that of a flow.
var ErrNoFlows = errors.New("shaper: the bucket has no flows")

// Errors of methods on groups.
var (
	// ErrNoGroups says that a bucket has no groups. All methods of [Control] on groups
	// return it, and those on flows where a group is named ([Control.InGroup]).
	ErrNoGroups = errors.New("shaper: the bucket has no groups")

	// ErrGroupNeeded says that a bucket has groups, and a flow was named without its own.
	ErrGroupNeeded = errors.New("shaper: the bucket has groups: name the flow's (InGroup)")
)
