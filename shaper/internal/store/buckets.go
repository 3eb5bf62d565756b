package store

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// New returns a store of these buckets. The role fixes whether the store writes their settings.
func New(role Role, client redis.UniversalClient, buckets []shaper.Bucket, timeout time.Duration, log *slog.Logger, reg prometheus.Registerer) (*Store, error) {
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
	s := &Store{Redis: client, Timeout: timeout, Log: log, Metrics: m, Role: role, By: redisconn.ProcessName(), known: &known{}}
	s.set.Store(&bucketSet{})
	return s, s.Reconfigure(buckets)
}

// completed returns the bucket with the defaults of its limits, or what is
// wrong with it.
func (s *Store) completed(b shaper.Bucket) (*shaper.Bucket, error) {
	if s.Role == ReadOnly && isNamed(&b) {
		return &b, nil
	}
	b.Limits = slices.Clone(b.Limits)
	for i := range b.Limits {
		b.Limits[i] = b.Limits[i].WithDefaults()
	}
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	return &b, nil
}

func newBucket(own *shaper.Bucket, k Keys) *Bucket {
	b := &Bucket{Name: own.Name, Keys: k, turn: make(chan struct{}, 1)}
	b.own.Store(own)
	b.Settings.Store(own)
	return b
}

// countParts exposes the metrics of a bucket, and of the limits and budget units that it has now. It removes the metrics of those that it no
// longer has.
func (s *Store) countParts(state *Bucket, now *shaper.Bucket) {
	before := state.own.Load()
	s.Metrics.AddBucket(state.Name)
	for _, limit := range before.Limits {
		if !slices.ContainsFunc(now.Limits, func(l admission.Limit) bool { return l.Name == limit.Name }) {
			s.Metrics.RemoveLimit(state.Name, limit.Name)
		}
	}
	for _, limit := range now.Limits {
		s.Metrics.AddLimit(state.Name, limit.Name)
	}
	units := slices.Collect(unitsOf(now, ownBudgets(now)))
	for unit := range unitsOf(before, ownBudgets(before)) {
		if !slices.Contains(units, unit) {
			s.Metrics.RemoveUnit(state.Name, unit)
		}
	}
	for _, unit := range units {
		s.Metrics.AddUnit(state.Name, unit)
	}
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
	after := &bucketSet{byName: make(map[string]*Bucket, len(buckets)), renamed: map[string]string{}}
	settings := make([]*shaper.Bucket, len(buckets))
	for i := range buckets {
		b, err := s.completed(buckets[i])
		if err != nil {
			return err
		}
		if after.byName[b.Name] != nil {
			return fmt.Errorf("bucket %q: is given twice", b.Name)
		}
		if other := after.renamed[b.KeyName()]; other != "" {
			return fmt.Errorf("bucket %q: %q is the first name of bucket %q: want a name that no other bucket has had", b.Name, b.KeyName(), other)
		}
		after.renamed[b.KeyName()] = b.Name
		state := before.byName[b.Name]
		// Outcomes of jobs in flight would go to lists that do not exist.
		if state != nil && levelsOf(state.own.Load()) != levelsOf(b) && s.Role == Authoritative {
			return fmt.Errorf("bucket %q: flow: whether there are flows or groups cannot change while the bucket is in use: restart with it empty", b.Name)
		}
		if state == nil || state.own.Load().KeyName() != b.KeyName() || tagOf(state.own.Load()) != tagOf(b) || levelsOf(state.own.Load()) != levelsOf(b) {
			state = newBucket(b, TaggedKeys(tagOf(b), b.KeyName()).As(levelsOf(b)))
		}
		settings[i], after.byName[b.Name], after.order = b, state, append(after.order, state)
	}
	for i, state := range after.order {
		if settings[i].Revision > state.own.Load().Revision {
			state.joined.Store(false) // it may win back a bucket that another configuration has elsewhere
		}
		s.countParts(state, settings[i])
		// A write wakes all dispatchers of a bucket, so settings that have not changed are not written again.
		if before.byName[state.Name] != state || !reflect.DeepEqual(state.own.Load(), settings[i]) {
			state.own.Store(settings[i])
			state.Settings.Store(settings[i])
			state.started.Store(0)
			state.budgets.Store(nil)
			state.Configured.Store(false)
		}
	}
	s.set.Store(after)
	for _, state := range before.order {
		if after.byName[state.Name] != state {
			state.joined.Store(true) // a call that still uses it does not bring it back
		}
		if after.byName[state.Name] == nil {
			s.Metrics.RemoveBucket(state.Name)
		}
	}
	return nil
}
