package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

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

// ConfigurePool writes what scripts obey of a bucket's pool. Each of its buckets does.
func (s *Store) ConfigurePool(ctx context.Context, b *shaper.Bucket) error {
	p := b.Pool
	if p == nil {
		return nil
	}
	reply, err := s.Run(ctx, lua.Configure, []string{PoolConf(p.Name)}, schemaVersion, p.Revision, WakeChannel, WakePool+p.Name,
		FieldRateCount, p.Rate.Count, FieldRatePer, p.Rate.Per.Microseconds(), "burst", poolBurst(p), "quotas", codec.QuotasText(p.Quotas),
		"max_in_flight", p.MaxInFlight)
	if err != nil {
		return fmt.Errorf("pool %q: %w", p.Name, err)
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	switch {
	case r.Err() != nil:
		return fmt.Errorf("pool %q: script configure: %w", p.Name, r.Err())
	case code == 1:
		s.Log.WarnContext(ctx, "a newer configuration of a pool is in force and is obeyed",
			"pool", p.Name, "own_revision", p.Revision, "revision", revision)
	case code == 2:
		return fmt.Errorf("pool %q: its data has schema %d, this program knows %d: use a newer program", p.Name, schema, schemaVersion)
	}
	return nil
}

// Join configures a bucket, and brings it into the pool that the configuration of this process says first, until
// it has been there once. Afterwards, where another process has it elsewhere, that process started later or has
// a higher revision: it wins.
func (s *Store) Join(ctx context.Context, b *Bucket) error {
	if b.joined.Load() {
		return s.Configure(ctx, b)
	}
	return s.configureOnce(ctx, b, true)
}

// JoinPools brings every bucket into the pool that the configuration says, or out of one.
func (s *Store) JoinPools(ctx context.Context) error {
	var errs []error
	for _, b := range s.All() {
		if err := s.Join(ctx, b); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// CheckPools reports the buckets that could not change their pool as these settings say.
func (s *Store) CheckPools(ctx context.Context, buckets []shaper.Bucket) error {
	var errs []error
	for i := range buckets {
		b := &buckets[i]
		p, err := s.placeOf(ctx, b.Name)
		if err == nil && p.tag != "" && p.tag != tagOf(b) {
			_, err = s.relocate(ctx, b, p.tag, TaggedKeys(p.tag, b.Name), nil, "look", 0)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
