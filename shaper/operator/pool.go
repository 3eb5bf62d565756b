package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// ErrUnknownPool says that Redis knows no pool of this name.
var ErrUnknownPool = errors.New("shaper: unknown pool")

// poolChangeError is an [InvalidChangeError] of a pool: its text names the pool.
type poolChangeError struct{ *InvalidChangeError }

func (e poolChangeError) Error() string {
	return "pool" + strings.TrimPrefix(e.InvalidChangeError.Error(), "bucket")
}
func (e poolChangeError) Unwrap() error { return e.InvalidChangeError }

func invalidPoolChange(pool string, err error) error {
	return poolChangeError{&InvalidChangeError{pool, err}}
}

// ofPools are the settings of pools that operators change.
var ofPools = store.OfPools.Changeable()

func notOfPools(setting shaper.Setting) error {
	return fmt.Errorf("%s: is no setting of a pool: want %v", setting, shaper.PoolSettings())
}

// Pool is the handle of a pool. Changes return [ErrUnknownPool] if Redis does not know the pool and no configured bucket is in it. They need an author:
// see [Operator.As].
type Pool struct {
	op   *Operator
	name string
}

// Pool returns the handle of a pool. It does not ask Redis whether the pool exists.
func (o *Operator) Pool(name string) Pool { return Pool{o, name} }

// Info returns the numbers of the pool. For a pool that Redis does not know, these are only its configured buckets.
func (p Pool) Info(ctx context.Context) (PoolDetails, error) {
	all, err := p.op.PoolDetails(ctx, p.name)
	if err != nil {
		return PoolDetails{}, err
	}
	return all[0], nil
}

// Set changes settings of a pool over what configurations say, until [Pool.Reset], as [Bucket.Set] does for a bucket: the settings in
// [shaper.PoolSettings]. A max_in_flight of 0 means none. A patch that does not fit is an [*InvalidChangeError], whose Bucket is the pool. Two round
// trips.
func (p Pool) Set(ctx context.Context, patch BucketPatch) ([]shaper.Change, error) {
	o, pool := p.op, p.name
	if patch.IsZero() {
		return nil, invalidPoolChange(pool, errNoChange)
	}
	for setting := range patch.values {
		if ofPools.Find(setting) == nil {
			return nil, invalidPoolChange(pool, notOfPools(setting))
		}
	}
	changed, err := o.poolInForce(ctx, pool)
	if err != nil {
		return nil, err
	}
	patch.apply(&changed, ofPools)
	var errs []error
	if err := changed.Validate(); err != nil {
		errs = append(errs, err)
	}
	if changed.Burst == 0 { // a program means the default by 0, but a person makes a mistake
		errs = append(errs, fmt.Errorf("burst: 0: want 1 to %d", shaper.MaxBurst))
	}
	if len(errs) > 0 {
		return nil, invalidPoolChange(pool, errors.Join(errs...))
	}
	return o.changePool(ctx, pool, metrics.ActionSet, 2, patch.fields()...)
}

// Reset removes overrides of settings of a pool; without settings, all of them. One round trip.
func (p Pool) Reset(ctx context.Context, settings ...shaper.Setting) ([]shaper.Change, error) {
	o, pool := p.op, p.name
	if len(settings) == 0 {
		settings = shaper.PoolSettings()
	}
	fields, unknown := resetFields(ofPools, settings)
	if unknown != "" {
		return nil, invalidPoolChange(pool, notOfPools(unknown))
	}
	return o.changePool(ctx, pool, metrics.ActionReset, 1, fields...)
}

// poolInForce returns a pool with its effective rate, burst and bound.
func (o *Operator) poolInForce(ctx context.Context, pool string) (shaper.Pool, error) {
	now := shaper.Pool{Name: pool, Burst: 1}
	if err := o.findPool(ctx, pool); err != nil {
		return now, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	found, err := o.store.Redis.HGetAll(ctx, store.PoolConf(pool)).Result()
	if err != nil {
		return now, fmt.Errorf("pool %q: read its settings: %w", pool, err)
	}
	if len(found) == 0 {
		return now, fmt.Errorf("%w %q", ErrUnknownPool, pool)
	}
	ofPools.Read(&now, found)
	return now, nil
}

// findPool makes Redis know the pool if a bucket that is configured here is in it.
func (o *Operator) findPool(ctx context.Context, pool string) error {
	if !admission.ValidName(pool) {
		return fmt.Errorf("%w %q", ErrUnknownPool, pool)
	}
	for _, b := range o.store.All() {
		if b.Keys.Pool == pool {
			err := o.store.Configure(ctx, b)
			if errors.Is(err, shaper.ErrTagChanged) { // the bucket has not joined yet
				err = o.store.ConfigurePool(ctx, b.Own())
			}
			return err
		}
	}
	return nil
}

// controlPool runs control.lua on a pool, and returns its reply after the first three numbers.
func (o *Operator) controlPool(ctx context.Context, pool, action string, args ...any) (*lua.Reader, error) {
	if err := o.hasAuthor(); err != nil {
		return nil, err
	}
	if err := o.findPool(ctx, pool); err != nil {
		return nil, err
	}
	reply, err := o.store.Run(ctx, lua.Control, store.ForControlPool(pool), append([]any{store.WakeChannel, store.WakePool + pool, action, o.by}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", pool, err)
	}
	r := lua.NewReader(reply)
	if status := r.Int(); status != 0 && r.Err() == nil {
		return nil, fmt.Errorf("%w %q", ErrUnknownPool, pool)
	}
	return r, r.Err()
}

// notePool logs what was done to a pool.
func (o *Operator) notePool(ctx context.Context, pool, action string, args ...any) {
	o.store.Log.InfoContext(ctx, "an operator changed a pool", append([]any{"pool", pool, "action", action, "by", o.by}, args...)...)
}

func (o *Operator) changePool(ctx context.Context, pool, action string, step int, args ...any) ([]shaper.Change, error) {
	r, err := o.controlPool(ctx, pool, action, args...)
	if err != nil {
		return nil, err
	}
	_, _ = r.Int(), r.Int() // now; it has no pause
	changes, isChanged, err := readChanges(r, action, step, args)
	if err != nil {
		return nil, fmt.Errorf("pool %q: script control: %w", pool, err)
	}
	if isChanged {
		o.notePool(ctx, pool, action, "changes", store.ChangesText(changes))
	}
	return changes, nil
}
