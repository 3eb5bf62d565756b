package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// poolNames returns the pools of the configuration in its order, then the pools that are only in Redis.
func (o *ops) poolNames(ctx context.Context) ([]string, error) {
	known, err := o.buckets.KnownPools(ctx)
	var names []string
	for _, pool := range *o.pools.Load() {
		names = append(names, pool.Name)
	}
	for _, name := range slices.Concat(o.buckets.Pools(), known) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}

// configuredPool returns a pool of the configuration, nil if it has none with this name, and the revision of the configuration. named says that a bucket
// names the pool.
func (o *ops) configuredPool(name string) (pool *shaper.Pool, named bool, revision int64) {
	for _, bucket := range o.buckets.Buckets() {
		b := o.configured(bucket)
		if b == nil {
			continue
		}
		if revision = b.Revision; b.Pool != nil && b.Pool.Name == name {
			return b.Pool, true, revision
		}
	}
	for _, p := range *o.pools.Load() {
		if p.Name == name {
			return &p, false, max(revision, p.Revision)
		}
	}
	return nil, false, revision
}

// poolView returns the view of a pool, with the buckets of the caller's key.
func (o *ops) poolView(r *http.Request, p *operator.PoolDetails) opsview.PoolView {
	pool, named, revision := o.configuredPool(p.Name)
	view := opsview.PoolViewOf(*p, pool, named, revision)
	if key := keyOf(r); key != nil {
		view.Buckets = slices.DeleteFunc(view.Buckets, func(b opsview.PoolBucket) bool { return !key.MayUse(b.Name) })
	}
	return view
}

func (o *ops) listPools(r *http.Request, _ *struct{}) (*PoolList, error) {
	names, err := o.poolNames(r.Context())
	var all []operator.PoolDetails
	if err == nil && len(names) > 0 { // no names would mean all of the configuration
		all, err = o.buckets.PoolDetails(r.Context(), names...)
	}
	list := &PoolList{make([]opsview.PoolView, len(all))}
	for i := range all {
		list.Pools[i] = o.poolView(r, &all[i])
	}
	return list, err
}

func (o *ops) showPool(r *http.Request, in *PoolName) (*opsview.PoolView, error) {
	return o.poolAfter(r, in.Pool, opsview.Outcome{})
}

// poolAfter returns a pool with the result of its change.
func (o *ops) poolAfter(r *http.Request, name string, outcome opsview.Outcome) (*opsview.PoolView, error) {
	names, err := o.poolNames(r.Context())
	if err == nil && !slices.Contains(names, name) {
		err = operator.ErrUnknownPool
	}
	if err != nil {
		return nil, err
	}
	all, err := o.buckets.PoolDetails(r.Context(), name)
	if err != nil {
		return nil, err
	}
	view := o.poolView(r, &all[0])
	view.Outcome = outcome
	return &view, nil
}

func (o *ops) changePool(r *http.Request, name string, do func(ctx context.Context, p operator.Pool) (opsview.Outcome, error)) (*opsview.PoolView, error) {
	return change(r, func(ctx context.Context) (opsview.Outcome, error) { return do(ctx, o.as(r).Pool(name)) },
		func(r *http.Request, outcome opsview.Outcome) (*opsview.PoolView, error) {
			return o.poolAfter(r, name, outcome)
		})
}

func (o *ops) setPool(r *http.Request, in *PoolSettings) (*opsview.PoolView, error) {
	return o.changePool(r, in.Pool, func(ctx context.Context, p operator.Pool) (opsview.Outcome, error) {
		return set(ctx, p, in.Settings)
	})
}

func (o *ops) resetPool(r *http.Request, in *PoolResets) (*opsview.PoolView, error) {
	return o.changePool(r, in.Pool, func(ctx context.Context, p operator.Pool) (opsview.Outcome, error) {
		return reset(ctx, p, in.Settings)
	})
}

func (o *ops) resetPoolSetting(r *http.Request, in *PoolReset) (*opsview.PoolView, error) {
	return o.resetPool(r, &PoolResets{in.PoolName, []string{in.Setting}})
}

// releasePool ends a hold and an open circuit breaker of a pool.
func (o *ops) releasePool(r *http.Request, in *PoolName) (*opsview.PoolView, error) {
	return o.changePool(r, in.Pool, func(ctx context.Context, p operator.Pool) (opsview.Outcome, error) {
		return outcomeOf(p.Release(ctx))
	})
}
