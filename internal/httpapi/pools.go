package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (o *ops) poolRoutes() []route {
	read := roles(apikey.RoleRead)
	// A change of a pool holds for all its buckets.
	change := rights{roles: []apikey.Role{apikey.RoleAdmin}, allBuckets: true}
	return []route{
		{"GET", "/v1/pools", o.listPools, read},
		{"GET", "/v1/pools/{pool}", o.showPool, read},
		{"PATCH", "/v1/pools/{pool}", setting(o.changePool), change},
		{"POST", "/v1/pools/{pool}/release", o.releasePool, change},
		{"DELETE", "/v1/pools/{pool}/overrides", resetting(o.changePool), change},
		{"DELETE", "/v1/pools/{pool}/overrides/{setting}", resetting(o.changePool), change},
	}
}

// poolNames are the pools of the configuration in its order, then those that only Redis
// knows.
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

// configuredPool is a pool of the configuration, nil if it has none of this name, and the revision of the configuration. named
// says that a bucket names the pool.
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

// poolView shows a pool with the buckets that the caller's key is for.
func (o *ops) poolView(r *http.Request, p *operator.PoolDetails) opsview.PoolView {
	pool, named, revision := o.configuredPool(p.Name)
	view := opsview.PoolViewOf(*p, pool, named, revision)
	if key := keyOf(r); key != nil {
		view.Buckets = slices.DeleteFunc(view.Buckets, func(b opsview.PoolBucket) bool { return !key.MayUse(b.Name) })
	}
	return view
}

// listPools answers all pools: GET /v1/pools.
func (o *ops) listPools(w http.ResponseWriter, r *http.Request) {
	names, err := o.poolNames(r.Context())
	var all []operator.PoolDetails
	if err == nil && len(names) > 0 { // no names would mean all of the configuration
		all, err = o.buckets.PoolDetails(r.Context(), names...)
	}
	if err != nil {
		o.store.of(r, err).write(w, r)
		return
	}
	views := make([]opsview.PoolView, len(all))
	for i := range all {
		views[i] = o.poolView(r, &all[i])
	}
	writeJSON(w, http.StatusOK, map[string]any{"pools": views})
}

// showPool answers one pool: GET /v1/pools/{pool}.
func (o *ops) showPool(w http.ResponseWriter, r *http.Request) { o.answerPool(w, r, opsview.Outcome{}) }

// answerPool answers the pool of a request, and what a change of it came to.
func (o *ops) answerPool(w http.ResponseWriter, r *http.Request, outcome opsview.Outcome) {
	name := r.PathValue("pool")
	names, err := o.poolNames(r.Context())
	if err == nil && !slices.Contains(names, name) {
		o.unknownPool(name).write(w, r)
		return
	}
	var all []operator.PoolDetails
	if err == nil {
		all, err = o.buckets.PoolDetails(r.Context(), name)
	}
	if err != nil {
		o.store.of(r, err).write(w, r)
		return
	}
	view := o.poolView(r, &all[0])
	view.Outcome = outcome
	writeJSON(w, http.StatusOK, view)
}

func (o *ops) unknownPool(name string) *fault {
	return newFault(codeUnknownPool, "unknown pool %q: the buckets of the configuration are in %s", name, cmp.Or(strings.Join(o.buckets.Pools(), ", "), "none"))
}

// releasePool ends a hold and an open circuit breaker of a pool: POST /v1/pools/{pool}/release.
func (o *ops) releasePool(w http.ResponseWriter, r *http.Request) {
	o.changePool(w, r, func(ctx context.Context, s settable) (opsview.Outcome, error) { return outcomeOf(s.Release(ctx)) })
}

// changePool makes the change of an operator, even if the client does not wait for it, and answers the
// pool after it.
func (o *ops) changePool(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, s settable) (opsview.Outcome, error)) {
	pool := r.PathValue("pool")
	outcome, err := do(context.WithoutCancel(r.Context()), o.as(r).Pool(pool))
	bad, isBad := errors.AsType[*operator.InvalidChangeError](err)
	switch {
	case err == nil:
		o.answerPool(w, r, outcome)
	case isBad:
		invalid(patchFaults(bad.Err)).write(w, r)
	case errors.Is(err, operator.ErrUnknownPool):
		o.unknownPool(pool).write(w, r)
	default:
		f := o.store.of(r, err)
		if f.Code == codeStoreUnavailable {
			f.Detail = fmt.Sprintf("Redis is not reachable or too slow: pool %q may be changed; send the same request again, which is safe", pool)
		}
		f.write(w, r)
	}
}
