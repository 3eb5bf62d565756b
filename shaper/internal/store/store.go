// Package store knows where the keys of a bucket are, keeps its configuration in Redis, and runs scripts.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// schemaVersion is that of the data in Redis. A bucket with a newer one is
// left alone.
const schemaVersion = 2

// ErrNotConfigured is the scripts' answer when a bucket's conf is missing: it
// is new, or somebody flushed Redis.
var ErrNotConfigured = errors.New("shaper: the bucket is not configured in Redis")

// Store runs scripts with a deadline and sees to it that a bucket's conf is
// in Redis before the first of them.
type Store struct {
	Redis   redis.UniversalClient
	Timeout time.Duration
	Log     *slog.Logger
	Metrics *metrics.Metrics
	closed  atomic.Bool // of a client: no call goes to Redis any more

	changing sync.Mutex                // of a change of the set
	set      atomic.Pointer[bucketSet] // replaced by a reload
}

// bucketSet is the buckets of a configuration. It does not change.
type bucketSet struct {
	byName map[string]*Bucket
	order  []*Bucket // of the configuration
}

// Bucket is a bucket as this process sees it. A bucket that changes its pool, or leaves the configuration and comes back, is
// another Bucket from then on.
type Bucket struct {
	Name string
	Keys Keys

	Settings   atomic.Pointer[shaper.Bucket] // of the configuration, replaced by a reload
	lent       bool                          // this process has no configuration of it, and writes none
	turn       chan struct{}                 // held by whoever writes the conf
	Configured atomic.Bool
	joined     atomic.Bool // it is, or was, in the pool that the configuration says: see join
}

func New(client redis.UniversalClient, buckets []shaper.Bucket, timeout time.Duration, log *slog.Logger, reg prometheus.Registerer) (*Store, error) {
	if client == nil {
		return nil, errors.New("shaper: no Redis client is given")
	}
	if timeout == 0 {
		timeout = shaper.DefaultTimeout
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := metrics.New(reg)
	if err != nil {
		return nil, err
	}
	s := &Store{Redis: client, Timeout: timeout, Log: log, Metrics: m}
	s.set.Store(&bucketSet{})
	return s, s.Reconfigure(buckets)
}

// Lent is a bucket as a process sees it that has no configuration. Settings are those that outcomes are settled by.
func Lent(settings *shaper.Bucket, keys Keys) *Bucket {
	b := &Bucket{Name: settings.Name, Keys: keys, lent: true}
	b.Settings.Store(settings)
	return b
}

// IsLent reports whether this process has no configuration of the bucket.
func (b *Bucket) IsLent() bool { return b.lent }

// completed returns the bucket with the defaults of its limits, or what is
// wrong with it.
func completed(b shaper.Bucket) (*shaper.Bucket, error) {
	b.Limits = slices.Clone(b.Limits)
	for i := range b.Limits {
		b.Limits[i] = b.Limits[i].WithDefaults()
	}
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	return &b, nil
}

// Reconfigure replaces the buckets, and has settings that have changed written at the next use. A bucket that stays, at its place, is
// the same Bucket as before. It changes nothing if one is not valid.
func (s *Store) Reconfigure(buckets []shaper.Bucket) error {
	if err := s.IfClosed(); err != nil {
		return err
	}
	if err := samePools(buckets); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	before := s.set.Load()
	after := &bucketSet{byName: make(map[string]*Bucket, len(buckets))}
	settings := make([]*shaper.Bucket, len(buckets))
	for i := range buckets {
		b, err := completed(buckets[i])
		if err != nil {
			return err
		}
		if after.byName[b.Name] != nil {
			return fmt.Errorf("bucket %q: is given twice", b.Name)
		}
		state := before.byName[b.Name]
		// Outcomes of jobs that are in flight would look for their places where there are none.
		if state != nil && state.Levels() != levelsOf(b) {
			return fmt.Errorf("bucket %q: flow: whether there are flows or groups cannot change while the bucket is in use: restart with it empty", b.Name)
		}
		if state == nil || tagOf(state.Settings.Load()) != tagOf(b) {
			state = &Bucket{Name: b.Name, Keys: TaggedKeys(tagOf(b), b.Name).As(levelsOf(b)), turn: make(chan struct{}, 1)}
			state.Settings.Store(b)
		}
		settings[i], after.byName[b.Name], after.order = b, state, append(after.order, state)
	}
	for i, state := range after.order {
		if settings[i].Revision > state.Settings.Load().Revision {
			state.joined.Store(false) // it may win back a bucket that another configuration has elsewhere
		}
		s.Metrics.AddBucket(state.Name)
		for _, limit := range settings[i].Limits {
			s.Metrics.AddLimit(state.Name, limit.Name)
		}
		for _, limit := range state.Settings.Load().Limits {
			if !slices.ContainsFunc(settings[i].Limits, func(l admission.Limit) bool { return l.Name == limit.Name }) {
				s.Metrics.RemoveLimit(state.Name, limit.Name)
			}
		}
		// A write wakes all dispatchers of a bucket, so that the settings that have not changed are not written again.
		if before.byName[state.Name] != state || !reflect.DeepEqual(state.Settings.Load(), settings[i]) {
			state.Settings.Store(settings[i])
			state.Configured.Store(false)
		}
	}
	s.set.Store(after)
	for _, state := range before.order {
		if after.byName[state.Name] != state {
			state.joined.Store(true) // whoever still uses it does not bring it back
		}
		if after.byName[state.Name] == nil {
			s.Metrics.RemoveBucket(state.Name)
		}
	}
	return nil
}

// All returns the buckets in the order of the configuration.
func (s *Store) All() []*Bucket { return s.set.Load().order }

// Names returns the names of the buckets in the order of the configuration.
func (s *Store) Names() []string {
	all := s.All()
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.Name
	}
	return names
}

// Known returns a bucket of the configuration, or nil.
func (s *Store) Known(name string) *Bucket { return s.set.Load().byName[name] }

// Bucket is Known with an error instead of nil, and of a store that was closed.
func (s *Store) Bucket(name string) (*Bucket, error) {
	if err := s.IfClosed(); err != nil {
		return nil, err
	}
	if b := s.Known(name); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, name)
}

// Close has every later call fail with ErrClosed.
func (s *Store) Close() { s.closed.Store(true) }

// IfClosed returns ErrClosed, or nil.
func (s *Store) IfClosed() error {
	if s.closed.Load() {
		return shaper.ErrClosed
	}
	return nil
}

// Run runs a script once, within the deadline of ctx or else the store's
// timeout.
func (s *Store) Run(ctx context.Context, script *lua.Script, keys []string, args ...any) (any, error) {
	if err := s.IfClosed(); err != nil {
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return script.Run(ctx, s.Redis, s.Metrics.ObserveScript, keys, args...)
}

// RunConfigured runs a script that answers {1} where the bucket's conf is
// missing, writes the conf then, and runs it again. The answer has its first
// item, 0, taken off. All of it takes at most the store's timeout.
func (s *Store) RunConfigured(ctx context.Context, b *Bucket, script *lua.Script, keys []string, args ...any) (*lua.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	for range 2 {
		if err := s.Configure(ctx, b); err != nil {
			return nil, err
		}
		reply, err := s.Run(ctx, script, keys, args...)
		if err != nil {
			return nil, err
		}
		r := lua.NewReader(reply)
		if status := r.Int(); r.Err() != nil || status == 0 {
			return r, r.Err()
		}
		b.Configured.Store(false)
	}
	return nil, fmt.Errorf("bucket %q: %w", b.Name, ErrNotConfigured)
}

// Configure writes what the scripts obey, once. Concurrent callers wait for
// the first, no longer than their own ctx and the store's timeout.
func (s *Store) Configure(ctx context.Context, b *Bucket) error {
	if b.lent || b.Configured.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.configureOnce(ctx, b, false)
}

// configureOnce is configure, and changes the pool of the bucket first if it is to join: see join.
func (s *Store) configureOnce(ctx context.Context, b *Bucket, join bool) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return fmt.Errorf("bucket %q: wait for its configuration: %w", b.Name, ctx.Err())
	}
	if b.Configured.Load() {
		return nil
	}
	own := b.Settings.Load()
	for range poolChangeTries {
		p, err := s.located(ctx, own)
		written := false
		switch {
		case err != nil:
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		case join && p.left() != "":
			err = s.removeLeft(ctx, own, p)
		case p.tag == tagOf(own):
			written, err = s.writeConf(ctx, b, own, p)
		case join:
			err = s.changePool(ctx, own, p)
		default:
			return livesElsewhere(own, p.tag)
		}
		if err != nil && !errors.Is(err, errOvertaken) {
			return err
		}
		if written {
			b.joined.Store(true)
			b.Configured.Store(b.Settings.Load() == own) // else a reload came between: once more
			return nil
		}
	}
	return fmt.Errorf("bucket %q: %w", b.Name, errOvertaken)
}

// writeConf writes what the scripts obey to the place where a bucket lives. It returns false if the bucket does not
// live there any more: then the caller has to look again.
func (s *Store) writeConf(ctx context.Context, b *Bucket, own *shaper.Bucket, p place) (written bool, err error) {
	if err := s.ConfigurePool(ctx, own); err != nil {
		return false, err
	}
	limits, err := admission.EncodeLimits(own.Limits)
	if err != nil {
		return false, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	args := []any{schemaVersion, own.Revision, WakeChannel, b.Name, "generation", p.number(),
		"rate_count", own.Rate.Count, "rate_per", own.Rate.Per.Microseconds(), "burst", own.Burst,
		"capacity", own.Capacity, "scheduled_capacity", own.ScheduledCapacity, "max_in_flight", own.MaxInFlight,
		"dead_capacity", own.DeadCapacity, "dead_max_bytes", own.DeadBytes, "dead_retention", own.DeadRetention.Microseconds(),
		"dead_drop", BoolArg(own.WhenDeadFull == shaper.DropOldestDead),
		"shed_high", own.Shed.High, "shed_normal", own.Shed.Normal, "shed_low", own.Shed.Low,
		"dedupe_window", own.DedupeWindow.Microseconds(), "dedupe_max", own.DedupeMax,
		"quotas", codec.QuotasText(own.Quotas), "weight", max(own.Weight, 1), "aging", own.PriorityAging.Microseconds(), "downstream", codec.DownstreamRules(own),
		"max_age", own.Retry.MaxAge.Microseconds(), "keep_attempts", own.Retry.KeepAttempts, "events", eventsText(own.Events), "batch", codec.BatchText(own.Batch),
		"result_retention", own.Results.Retention.Microseconds(), "results_max", own.Results.Max, "results_bytes", own.Results.Bytes,
		admission.FieldLimits, limits}
	args = append(args, partFields(own)...)
	plan, err := s.planFields(ctx, own)
	if err != nil {
		return false, err
	}
	args = append(args, plan...)
	reply, err := s.Run(ctx, lua.Configure, b.Keys.Of(lua.Configure), args...)
	if err != nil {
		return false, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	switch {
	case r.Err() != nil:
		return false, fmt.Errorf("bucket %q: script configure: %w", b.Name, r.Err())
	case code == configureLeft:
		return false, s.catchUp(ctx, own, p, r.Int(), r.Text())
	case code == 3:
		return false, fmt.Errorf("bucket %q: %w", b.Name, errFlowsChanged(levelsOf(own), r.Int(), r.Int()))
	case code == 1:
		s.Log.WarnContext(ctx, "a newer configuration is in force and is obeyed",
			"bucket", b.Name, "own_revision", own.Revision, "revision", revision)
		return true, nil
	case code == 2:
		return false, fmt.Errorf("bucket %q: its data has schema %d, this program knows %d: use a newer program", b.Name, schema, schemaVersion)
	case code == configureOld:
		return false, fmt.Errorf("bucket %q: its data has schema %d, and it holds %s: drain it with the version of before, then start this one, which knows schema %d",
			b.Name, schema, readHoldings(r), schemaVersion)
	}
	err = s.defineSchedules(ctx, b, own, p)
	return err == nil, err
}

// configureOld is the answer of configure.lua where the data is of the version before, and not empty.
const configureOld = 5

// configureLeft is the answer of configure.lua where a bucket does not live any more, or the index is behind.
const configureLeft = 4

// ErrOtherFlows says that the configuration in force parts the bucket into flows or groups,
// and that of this process does not, or the other way round.
var ErrOtherFlows = errors.New("another configuration is in force, which is not the same about its flows: " +
	"give all processes the same [buckets.flow] and [buckets.group]")
