package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// BucketInfo is a bucket in numbers. The tag lua is as of BucketNumbers.
type BucketInfo struct {
	Name          string
	FirstName     string         // by which Redis has it, of a bucket that was renamed; else "". See [shaper.Bucket.RenamedFrom]
	EffectiveName string         `lua:"name"`       // by which the process has it that wrote its settings; "" if that is not known
	Now           time.Time      `lua:"now"`        // of Redis
	Configured    bool           `lua:"configured"` // its settings are in Redis
	Rate          admission.Rate `lua:"rate"`       // what the scripts obey

	BucketNumbers

	Quotas  []shaper.QuotaUse  // with what is left of each; of a bucket that Redis does not have: none
	Budgets []shaper.BudgetUse // with what is charged to each

	HasFlows  bool
	HasGroups bool

	Pool *PoolInfo // nil if it is in none

	// Elsewhere says that the bucket lives in another pool than the configuration here says, or in none. The numbers, and Pool, are those there. See
	// JoinPools of dispatcher.Dispatcher.
	Elsewhere bool

	// Move is a change of its pool that is under way; nil: none. Before it begins, a Downstream with the reason [shaper.ReasonMoves] says that
	// running deliveries prevent it.
	Move *Move

	// Downstream is what responses to the bucket have changed; nil: nothing. If each flow, or the pool, is a scope of its own, its info has it.
	Downstream *shaper.Downstream

	OldestCallbackAge time.Duration `lua:"oldest_callback_age" gauge:"bucket_oldest_callback_age_seconds" help:"How long the oldest callback has waited."` // 0 without any

	// OldestAge is the age of the oldest job at the head of a list. In a bucket with flows, dispatchers search for that job about every 30 seconds.
	// Once it is sent, the next job counts as that old. 0: no job waits in a list, or none was found yet.
	OldestAge time.Duration `lua:"oldest_age"`
	LastSlot  time.Time     `lua:"last_slot"`

	// NextDue is when the first delayed job or retry is due; zero: there are none, or the bucket has flows.
	NextDue time.Time `lua:"next_due"`

	// Empty estimates when the last of the waiting jobs is sent (see lua/lib/estimate.lua); zero: none waits, or the time is not known. It is the
	// earliest time if the bound of requests in flight holds jobs back. It is also the earliest time if other buckets of the pool begin to send
	// later, or if flows have own rates or quotas.
	Empty time.Time `lua:"empty"`

	Hours *shaper.Hours    // nil if the bucket sends at all times, at its rate
	Drain *shaper.DrainRun // the last one that an operator started; nil: none

	Results KeptResults // of a bucket that keeps none, zero

	Pause     *shaper.Pause // nil if the bucket runs
	Overrides []Override    // settings that an operator has changed

	resumed  time.Time // when the last pause ended; zero: never
	changing time.Time // when the last changes of settings began, see lua/lib/changes.lua; zero: never

	keys store.Keys
}

// BucketInfos returns the numbers of buckets, without names of all configured ones. It first looks up where they live, and then takes one pipeline,
// in a cluster one per node. If it cannot read some buckets, it returns the others, and an error that names those.
func (o *Operator) BucketInfos(ctx context.Context, names ...string) ([]BucketInfo, error) {
	if len(names) == 0 {
		names = o.store.Names()
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	live, unknown := o.store.LiveKeys(ctx, names...)
	calls := make([]lua.Call, len(names))
	for i := range names {
		k := live[names[i]]
		calls[i] = lua.Call{Script: lua.InspectBucket, Keys: k.Of(lua.InspectBucket, ""), Args: append([]any{k.Member}, overridable...)}
	}
	infos := make([]BucketInfo, 0, len(names))
	errs := []error{unknown}
	for i, result := range lua.RunAll(ctx, o.store.Redis, calls) {
		info, err := BucketInfo{}, result.Err
		if err == nil {
			info, err = readBucketInfo(names[i], live[names[i]], result.Reply)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("look at bucket %q: %w", names[i], err))
			continue
		}
		b := o.store.Known(names[i])
		info.Elsewhere = b != nil && b.Keys.Prefix != live[names[i]].Prefix
		infos = append(infos, info)
	}
	return infos, errors.Join(append(errs, o.countCarried(ctx, infos))...)
}

// Move is a change of a bucket's pool under way: no script obeys the bucket. It takes milliseconds. If the processes that made it have died, the next
// process that uses the bucket completes it.
type Move struct {
	To   string // the pool that it goes to, "" out of one
	Keys int64  // that have moved
}

// countCarried counts the keys that have moved, where a bucket moves: one round trip more.
func (o *Operator) countCarried(ctx context.Context, infos []BucketInfo) error {
	for i := range infos {
		m := infos[i].Move
		if m == nil {
			continue
		}
		n, err := o.store.Redis.HGet(ctx, store.TaggedKeys(cmp.Or(m.To, infos[i].keys.Name), infos[i].keys.Name).Conf(), "carried").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("look at the move of bucket %q: %w", infos[i].Name, err)
		}
		m.Keys = n
	}
	return nil
}

func readBucketInfo(name string, k store.Keys, reply any) (BucketInfo, error) {
	a, err := lua.ReadAnswer(reply)
	if err != nil {
		return BucketInfo{}, err
	}
	info := BucketInfo{Name: name}
	if k.Name != name {
		info.FirstName = k.Name
	}
	codec.ReadAnswer(a, "", &info)
	codec.ReadAnswer(a, "", &info.Results)
	levels := a.Int("levels")
	info.HasFlows, info.HasGroups = levels != codec.LevelsNone, levels == codec.LevelsGroups
	info.keys = k.As(int(levels))
	info.Hours, info.Drain = codec.ReadHours(a), codec.ParseDrain(a.Text("drain"))
	info.Downstream = codec.ParseDownstream(a.Text("downstream"), a.Int("offset"), info.rateInForce())
	if to := a.Text("moves_to"); to != "" {
		info.Move = &Move{To: to}
		if to == k.Name {
			info.Move.To = ""
		}
	}
	info.Pause = codec.ReadPause(a.Int("paused"), a.Text("paused_by"), a.Text("paused_reason"))
	for name, at := range map[string]*time.Time{"resumed": &info.resumed, "changing": &info.changing} {
		if n := a.Int(name); n > 0 {
			*at = time.UnixMicro(n)
		}
	}
	info.Quotas, info.Budgets = codec.ReadQuotaUse(a.Text("quotas")), codec.ReadBudgetUse(a.Text("budgets"))
	if k.Pool != "" {
		pool := &PoolInfo{Name: k.Pool}
		codec.ReadAnswer(a, "pool_", pool)
		pool.Downstream = codec.ParseDownstream(a.Text("pool_downstream"), 0, pool.Rate)
		pool.Quotas, pool.Budgets = codec.ReadQuotaUse(a.Text("pool_quotas")), codec.ReadBudgetUse(a.Text("pool_budgets"))
		info.Pool = pool
	}
	r := a.List("overrides")
	info.Overrides = readOverrides(r)
	return info, errors.Join(a.Err(), r.Err())
}

// rateInForce returns the rate by the timetable and a drain, else the rate of the settings.
func (b *BucketInfo) rateInForce() admission.Rate {
	if b.Hours != nil && b.Hours.Rate.Count > 0 {
		return b.Hours.Rate
	}
	return b.Rate
}

// Authorships returns the writers of the settings of buckets and the processes with other settings, by bucket. It first looks up where they live, and
// then takes one pipeline, in a cluster one per node. It leaves out buckets that it cannot read. withChanges adds the changes.
func (o *Operator) Authorships(ctx context.Context, withChanges bool, names ...string) map[string]shaper.Authorship {
	live, _ := o.store.LiveKeys(ctx, names...)
	keys := make([]store.Keys, len(names))
	for i, name := range names {
		keys[i] = live[name]
	}
	found := o.store.Authorships(ctx, keys, withChanges)
	all := make(map[string]shaper.Authorship, len(names))
	for _, name := range names {
		if a, ok := found[live[name].Prefix]; ok {
			all[name] = a
		}
	}
	return all
}

// KnownBuckets returns the names of all buckets that Redis knows, sorted. It includes buckets that were removed from the configuration and may still
// hold jobs.
func (o *Operator) KnownBuckets(ctx context.Context) ([]string, error) {
	known, err := o.store.Index(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(known))
	for i := range known {
		names[i] = known[i].Name
	}
	return names, nil
}

// PoolInfo is a pool in numbers, as one of its buckets sees it.
type PoolInfo struct {
	Name        string
	Rate        admission.Rate `lua:"rate"` // what the scripts obey
	Burst       int64          `lua:"burst"`
	MaxInFlight int64          `lua:"max_in_flight"` // 0: none
	InFlight    int64          `lua:"in_flight"`     // of all its buckets
	LastSlot    time.Time      `lua:"last_slot"`     // of any of them
	Weight      int64          `lua:"weight"`        // of the bucket

	Quotas  []shaper.QuotaUse  // with what is left of each
	Budgets []shaper.BudgetUse // with what is charged to each

	Downstream *shaper.Downstream // what responses to its buckets have changed; nil: nothing
}
