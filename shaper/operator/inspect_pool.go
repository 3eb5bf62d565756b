package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// PoolDetails is a pool in numbers, with its buckets. Redis has a pool's settings once one of its buckets was used. The tags lua and gauge are as of
// BucketNumbers.
type PoolDetails struct {
	Name        string
	Now         time.Time      `lua:"now"`        // of Redis
	Configured  bool           `lua:"configured"` // its settings are in Redis
	Revision    int64          `lua:"revision"`
	Rate        admission.Rate `lua:"rate"` // what the scripts obey
	Burst       int64          `lua:"burst"`
	MaxInFlight int64          `lua:"max_in_flight" gauge:"pool_max_in_flight,positive" help:"Jobs in flight that the pool allows. None of a pool without such a bound."` // 0: none

	Quotas   []admission.Rate
	QuotaUse []shaper.QuotaUse // the same, with what is left of each

	Budgets   shaper.Budgets
	BudgetUse []shaper.BudgetUse // the same, with what is charged to each

	Downstream *shaper.Downstream // what responses to its buckets have changed; nil: nothing

	InFlight  int64     `lua:"in_flight" gauge:"pool_in_flight_jobs" help:"Requests in flight in all buckets of the pool: a batch is one, any other job too."` // of all its buckets
	LastSlot  time.Time `lua:"last_slot"`                                                                                                                      // of any of them
	Buckets   []PoolBucket
	Overrides []Override // settings that an operator has changed
}

// PoolBucket is a bucket as its pool knows it.
type PoolBucket struct {
	Name     string
	Weight   int64 // 0: not known, because the bucket was removed from the configuration and has sent nothing
	InFlight int64
	HasWork  bool // it takes its share; the others get the shares of buckets without work
}

// Pools returns the names of the pools that configured buckets are in, in the order of
// these.
func (o *Operator) Pools() []string {
	var names []string
	for _, b := range o.store.All() {
		if pool := b.Keys.Pool; pool != "" && !slices.Contains(names, pool) {
			names = append(names, pool)
		}
	}
	return names
}

// KnownPools returns the names of all pools that Redis knows a bucket in, sorted: also
// of a bucket that left the configuration. One round trip.
func (o *Operator) KnownPools(ctx context.Context) ([]string, error) {
	members, err := o.poolMembers(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(members)), nil
}

// poolMembers are the buckets of all pools that Redis knows, by the pool.
func (o *Operator) poolMembers(ctx context.Context) (map[string][]store.Indexed, error) {
	known, err := o.store.Index(ctx)
	if err != nil {
		return nil, err
	}
	members := map[string][]store.Indexed{}
	for _, b := range known {
		if pool := b.Keys.Pool; pool != "" {
			members[pool] = append(members[pool], b)
		}
	}
	return members, nil
}

// PoolDetails returns the numbers of pools, without names of all pools of configured buckets. It first reads which buckets exist, and then takes one
// pipeline, in a cluster one per node. For a pool that Redis does not know it returns only its buckets here. If it cannot read some pools, it returns
// the others, and an error that names those.
func (o *Operator) PoolDetails(ctx context.Context, names ...string) ([]PoolDetails, error) {
	if len(names) == 0 {
		names = o.Pools()
	}
	if len(names) == 0 {
		return nil, nil
	}
	members, err := o.poolMembers(ctx)
	if err != nil {
		return nil, err
	}
	all, err := o.poolDetails(ctx, names)
	for i := range all {
		p := &all[i]
		// The pool itself does not know a bucket that has sent nothing yet.
		for _, bucket := range members[p.Name] {
			p.rename(bucket.Keys.Name, bucket.Name)
			p.add(bucket.Name, 0)
		}
		for _, b := range o.store.All() {
			if b.Keys.Pool == p.Name {
				p.add(b.Name, max(b.Own().Weight, 1))
			}
		}
		slices.SortFunc(p.Buckets, func(a, b PoolBucket) int { return cmp.Compare(a.Name, b.Name) })
	}
	return all, err
}

// rename gives the bucket with this first name, by which scripts know it, its current one.
func (p *PoolDetails) rename(first, name string) {
	if at := slices.IndexFunc(p.Buckets, func(known PoolBucket) bool { return known.Name == first }); at >= 0 {
		p.Buckets[at].Name = name
	}
}

// add adds a bucket that is not there, and a weight that was not known.
func (p *PoolDetails) add(bucket string, weight int64) {
	at := slices.IndexFunc(p.Buckets, func(known PoolBucket) bool { return known.Name == bucket })
	if at < 0 {
		at = len(p.Buckets)
		p.Buckets = append(p.Buckets, PoolBucket{Name: bucket})
	}
	p.Buckets[at].Weight = cmp.Or(p.Buckets[at].Weight, weight)
}

// poolDetails returns the numbers of pools, as Redis keeps them for the pools.
func (o *Operator) poolDetails(ctx context.Context, names []string) ([]PoolDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	calls := make([]lua.Call, len(names))
	for i, name := range names {
		calls[i] = lua.Call{Script: lua.InspectPool, Keys: store.ForInspectPool(name), Args: overridableOfPools}
	}
	all := make([]PoolDetails, 0, len(names))
	var errs []error
	for i, result := range lua.RunAll(ctx, o.store.Redis, calls) {
		details, err := PoolDetails{}, result.Err
		if err == nil {
			details, err = readPoolDetails(names[i], result.Reply)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("look at pool %q: %w", names[i], err))
			continue
		}
		all = append(all, details)
	}
	return all, errors.Join(errs...)
}

func readPoolDetails(name string, reply any) (PoolDetails, error) {
	a, err := lua.ReadAnswer(reply)
	if err != nil {
		return PoolDetails{}, err
	}
	p := PoolDetails{Name: name}
	codec.ReadAnswer(a, "", &p)
	p.Quotas, p.QuotaUse = codec.ReadQuotas(a.Text("quotas")), codec.ReadQuotaUse(a.Text("quota_use"))
	p.Budgets, p.BudgetUse = codec.ReadBudgets(a.Text("budgets")), codec.ReadBudgetUse(a.Text("budget_use"))
	p.Downstream = codec.ParseDownstream(a.Text("downstream"), 0, p.Rate)
	buckets, overrides := a.List("buckets"), a.List("overrides")
	for buckets.Left() > 0 {
		p.Buckets = append(p.Buckets, PoolBucket{Name: buckets.Text(), Weight: buckets.Int(), InFlight: buckets.Int(), HasWork: buckets.Int() == 1})
	}
	p.Overrides = readOverrides(overrides)
	return p, errors.Join(a.Err(), buckets.Err(), overrides.Err())
}
