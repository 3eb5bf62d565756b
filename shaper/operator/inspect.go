package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// BucketInfo is a bucket in numbers.
type BucketInfo struct {
	Name              string
	Now               time.Time // of Redis
	Configured        bool      // its settings are in Redis
	Revision          int64
	Rate              admission.Rate // what the scripts obey
	Burst             int64
	Capacity          int64
	ScheduledCapacity int64
	MaxInFlight       int64

	Quotas []shaper.QuotaUse // with what is left of each; of a bucket that Redis does not have: none

	Unfinished int64 // what counts against Capacity, with Callbacks
	Waiting    int64 // in the lists; with flows: all that wait, also for their time
	Later      int64 // delayed jobs and retries; with flows: 0, they are not counted apart
	Scheduled  int64 // what counts against ScheduledCapacity
	InFlight   int64 // jobs that are leased
	Requests   int64 // in flight: fewer than jobs, where there are batches. MaxInFlight bounds them
	Dead       int64
	Remembered int64 // ids of settled jobs
	Forgotten  int64 // ids forgotten before their dedupe window ended
	Purged     int64 // jobs that purges have dropped, ever
	Purging    int64 // entries that a purge has moved aside and not removed yet

	DeadBytes        int64 // of dead letters
	DeadCapacity     int64 // how many dead letters there may be before new jobs are refused, or the oldest dropped
	DeadMaxBytes     int64 // how many bytes of them; 0 no bound
	DeadDroppedOld   int64 // dead letters that were dropped as their retention had ended, ever
	DeadDroppedExtra int64 // dead letters that were dropped as there were too many, ever

	HasFlows  bool
	Flows     int64 // that have jobs, or had some so lately that their pace still counts
	FlowsWait int64 // that stand on the calendar: they have something to send, now or later; with groups: 0, see GroupsWait

	HasGroups  bool
	Groups     int64 // as Flows
	GroupsWait int64 // that stand on the calendar of groups

	Pool *PoolInfo // nil if it is in none

	// Elsewhere says that the bucket lives in another pool than the configuration here says, or in none. The
	// numbers, and Pool, are those there. See JoinPools of dispatcher.Dispatcher.
	Elsewhere bool

	// Downstream is what the answers to the bucket have changed; nil: nothing. Where each flow, or the pool, is a scope of its own,
	// their infos have it.
	Downstream *shaper.Downstream

	// FlowsHeld, FlowsOpen and FlowsHalfOpen are how many flows their downstream holds, and how many have a circuit breaker that is
	// open or half-open. Dispatchers count them about every 30 seconds.
	FlowsHeld, FlowsOpen, FlowsHalfOpen int64

	Callbacks         int64         // that wait: they count against Capacity, beside Unfinished
	OldestCallbackAge time.Duration // how long the oldest one has waited; 0 without any

	EventsDropped int64 // that no hook was told of, ever: too many waited for that

	FlowsDisabled int64 // that send nothing and take no jobs, until an operator enables them

	// OldestAge is the age of the oldest job at the head of a list. Of a bucket with flows dispatchers look for that job about every
	// 30 seconds. Once it has left, the next one is taken to be as old as it was then. 0: no job waits in a list, or none was found yet.
	OldestAge time.Duration
	LastSlot  time.Time

	// Empty is when the last job leaves that waits now, as far as can be known (see lua/lib/estimate.lua); zero: none waits, or nobody
	// knows. It is the earliest time where the bound of requests in flight holds jobs back, where other buckets of the pool begin to send
	// later, and where flows have rates or quotas of their own.
	Empty time.Time

	Hours *shaper.Hours    // nil of a bucket that leaks at all times, at its rate
	Drain *shaper.DrainRun // the last one that an operator has asked for; nil: none

	Pause     *shaper.Pause // nil if the bucket runs
	Overrides []Override    // settings that an operator has changed
}

// BucketInfos returns the numbers of buckets, after a look at where they live, in one pipeline, in a cluster one
// to each node; without names, of all that are configured. With an error, which
// names the buckets that could not be looked at, it returns those that could.
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
		calls[i] = lua.Call{Script: lua.InspectBucket, Keys: k.Of(lua.InspectBucket, ""), Args: []any{k.Member}}
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
	return infos, errors.Join(errs...)
}

func readBucketInfo(name string, k store.Keys, reply any) (BucketInfo, error) {
	r := lua.NewReader(reply)
	now := r.Int()
	info := BucketInfo{Name: name, Now: time.UnixMicro(now), Configured: r.Int() == 1, Revision: r.Int()}
	info.Rate = admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}
	info.Burst, info.Capacity, info.ScheduledCapacity, info.MaxInFlight = r.Int(), r.Int(), r.Int(), r.Int()
	info.Unfinished, info.Waiting, info.Later, info.Scheduled = r.Int(), r.Int(), r.Int(), r.Int()
	info.InFlight, info.Dead, info.Remembered, info.Forgotten = r.Int(), r.Int(), r.Int(), r.Int()
	if oldest := r.Int(); oldest > 0 {
		info.OldestAge = max(lua.Microseconds(now-oldest), 0)
	}
	if slot := r.Int(); slot > 0 {
		info.LastSlot = time.UnixMicro(slot)
	}
	since := r.Int()
	info.Purging, info.Purged = r.Int(), r.Int()
	levels := r.Int()
	info.HasFlows, info.HasGroups = levels != codec.LevelsNone, levels == codec.LevelsGroups
	info.Flows, info.FlowsWait, info.Groups, info.GroupsWait = r.Int(), r.Int(), r.Int(), r.Int()
	if pool := readPoolInfo(r); k.Pool != "" {
		pool.Name, info.Pool = k.Pool, pool
	}
	info.DeadBytes, info.DeadCapacity, info.DeadMaxBytes = max(r.Int(), 0), r.Int(), r.Int()
	info.DeadDroppedOld, info.DeadDroppedExtra = r.Int(), r.Int()
	info.FlowsHeld, info.FlowsOpen, info.FlowsHalfOpen, info.FlowsDisabled = r.Int(), r.Int(), r.Int(), r.Int()
	info.EventsDropped, info.Callbacks = r.Int(), r.Int()
	if oldest := r.Int(); oldest > 0 {
		info.OldestCallbackAge = max(lua.Microseconds(now-oldest), 0)
	}
	offset := r.Int()
	info.Requests = r.Int()
	ofBucket := r.Text()
	if said := r.Text(); info.Pool != nil {
		info.Pool.Downstream = codec.ParseDownstream(said, 0, info.Pool.Rate)
	}
	info.Hours, info.Empty, info.Drain = codec.ReadHours(r), codec.InstantOf(r.Int()), codec.ParseDrain(r.Text())
	info.Downstream = codec.ParseDownstream(ofBucket, offset, info.rateInForce())
	info.Pause = codec.ReadPause(since, r.Text(), r.Text())
	info.Quotas = codec.ReadQuotaUse(r.Text())
	if left := r.Text(); info.Pool != nil {
		info.Pool.Quotas = codec.ReadQuotaUse(left)
	}
	info.Overrides = readOverrides(r)
	return info, r.Err()
}

// rateInForce is the rate by the timetable and a drain, else that of the settings.
func (b *BucketInfo) rateInForce() admission.Rate {
	if b.Hours != nil && b.Hours.Rate.Count > 0 {
		return b.Hours.Rate
	}
	return b.Rate
}

// Authorships returns who wrote the settings of buckets and which processes have others, by the names of the buckets, after a look at where
// they live, in one pipeline, in a cluster one to each node. Buckets that could not be looked at are left out. Changes are read if they are asked for.
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

// KnownBuckets returns the names of all buckets that Redis knows, sorted: also
// those that left the configuration and may still hold jobs.
func (o *Operator) KnownBuckets(ctx context.Context) ([]string, error) {
	if err := o.store.IfClosed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	names, err := o.store.Redis.HKeys(ctx, store.TagsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list the buckets: %w", err)
	}
	names = slices.DeleteFunc(names, func(field string) bool { return !store.IsBucketField(field) })
	slices.Sort(names)
	return names, nil
}

// PoolInfo is a pool in numbers, as one of its buckets sees it.
type PoolInfo struct {
	Name        string
	Rate        admission.Rate // what the scripts obey
	Burst       int64
	MaxInFlight int64     // 0: none
	InFlight    int64     // of all its buckets
	LastSlot    time.Time // of any of them
	Weight      int64     // of the bucket

	Quotas []shaper.QuotaUse // with what is left of each

	Downstream *shaper.Downstream // what the answers to its buckets have changed; nil: nothing
}

func readPoolInfo(r *lua.Reader) *PoolInfo {
	p := PoolInfo{Rate: admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}}
	p.Burst, p.MaxInFlight, p.InFlight, p.LastSlot, p.Weight = r.Int(), r.Int(), r.Int(), codec.InstantOf(r.Int()), r.Int()
	return &p
}
