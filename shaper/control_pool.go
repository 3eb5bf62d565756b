package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// ErrUnknownPool says that Redis knows no pool of this name.
var ErrUnknownPool = errors.New("shaper: unknown pool")

// poolChangeError is an [InvalidChangeError] of a pool, and says so.
type poolChangeError struct{ *InvalidChangeError }

func (e poolChangeError) Error() string {
	return "pool" + strings.TrimPrefix(e.InvalidChangeError.Error(), "bucket")
}
func (e poolChangeError) Unwrap() error { return e.InvalidChangeError }

func invalidPoolChange(pool string, err error) error {
	return poolChangeError{&InvalidChangeError{pool, err}}
}

func notOfPools(setting Setting) error {
	return fmt.Errorf("%s: is no setting of a pool: want %v", setting, PoolSettings())
}

// SetPool changes settings of a pool over what configurations say, until
// [Control.ResetPool], as [Control.Set] does those of a bucket: those of [PoolSettings].
// A max_in_flight of 0 means none. A patch that does not fit is an [*InvalidChangeError],
// whose Bucket is the pool. Two round trips.
func (c *Control) SetPool(ctx context.Context, pool string, patch BucketPatch) ([]Change, error) {
	if patch.IsZero() {
		return nil, invalidPoolChange(pool, errors.New("nothing is changed: name a setting and its value"))
	}
	for setting := range patch.numbers {
		if !slices.Contains(PoolSettings(), setting) {
			return nil, invalidPoolChange(pool, notOfPools(setting))
		}
	}
	b, err := c.poolInForce(ctx, pool)
	if err != nil {
		return nil, err
	}
	b = patch.applied(b)
	p := Pool{Name: pool, Rate: b.Rate, Burst: b.Burst, MaxInFlight: b.MaxInFlight}
	var errs []error
	if err := p.Validate(); err != nil {
		errs = append(errs, err)
	}
	if b.Burst == 0 { // which is the default where a program says it, and a mistake where a person does
		errs = append(errs, fmt.Errorf("burst: 0: want 1 to %d", MaxBurst))
	}
	if len(errs) > 0 {
		return nil, invalidPoolChange(pool, errors.Join(errs...))
	}
	return c.changePool(ctx, pool, actionSet, 2, patch.fields()...)
}

// ResetPool lets settings of a pool be as configured again; without any, all of them. One
// round trip.
func (c *Control) ResetPool(ctx context.Context, pool string, settings ...Setting) ([]Change, error) {
	if len(settings) == 0 {
		settings = PoolSettings()
	}
	var fields []any
	for _, setting := range settings {
		if !slices.Contains(PoolSettings(), setting) {
			return nil, invalidPoolChange(pool, notOfPools(setting))
		}
		for _, name := range settingFields[setting] {
			fields = append(fields, name)
		}
	}
	return c.changePool(ctx, pool, actionReset, 1, fields...)
}

// poolInForce is a bucket with the rate, the burst and the bound that a pool has now.
func (c *Control) poolInForce(ctx context.Context, pool string) (Bucket, error) {
	if err := c.findPool(ctx, pool); err != nil {
		return Bucket{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	found, err := c.store.redis.HGetAll(ctx, poolConf(pool)).Result()
	if err != nil {
		return Bucket{}, fmt.Errorf("pool %q: read its settings: %w", pool, err)
	}
	if len(found) == 0 {
		return Bucket{}, fmt.Errorf("%w %q", ErrUnknownPool, pool)
	}
	return readSettings(pool, found), nil
}

// findPool sees to it that a pool is known to Redis if a bucket that is configured here is in it.
func (c *Control) findPool(ctx context.Context, pool string) error {
	if !admission.ValidName(pool) {
		return fmt.Errorf("%w %q", ErrUnknownPool, pool)
	}
	for _, name := range c.store.order {
		if b := c.store.buckets[name]; b.keys.pool == pool {
			err := c.store.configure(ctx, b)
			if errors.Is(err, ErrTagChanged) { // the bucket has not joined yet
				err = c.store.configurePool(ctx, b.settings.Load())
			}
			return err
		}
	}
	return nil
}

func (c *Control) changePool(ctx context.Context, pool, action string, step int, args ...any) ([]Change, error) {
	if err := c.findPool(ctx, pool); err != nil {
		return nil, err
	}
	reply, err := c.store.run(ctx, lua.Control, []string{poolConf(pool)}, append([]any{wakeChannel, wakePool + pool, action, c.by}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", pool, err)
	}
	r := lua.NewReader(reply)
	if status := r.Int(); status != 0 && r.Err() == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknownPool, pool)
	}
	_, _ = r.Int(), r.Int()
	changes, err := readChanges(r, action, step, args)
	if err != nil {
		return nil, fmt.Errorf("pool %q: script control: %w", pool, err)
	}
	c.store.log.InfoContext(ctx, "an operator changed a pool", "pool", pool, "action", action, "by", c.by, "changes", changesText(changes))
	return changes, nil
}

// readChanges reads what control.lua has changed.
func readChanges(r *lua.Reader, action string, step int, args []any) ([]Change, error) {
	before, after := map[string]string{}, map[string]string{}
	for i := 0; i < len(args); i += step {
		field := fmt.Sprint(args[i])
		before[field], after[field] = r.Text(), r.Text()
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	var changes []Change
	for _, setting := range Settings() {
		if _, ok := before[settingFields[setting][0]]; !ok {
			continue
		}
		change := Change{setting, settingText(setting, before), settingText(setting, after)}
		if action == actionSet || change.Before != change.After {
			changes = append(changes, change)
		}
	}
	return changes, nil
}
