package store

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// writeConf writes the settings for the scripts to the place where a bucket lives. It returns false if the bucket no longer lives there, or if
// another process was first and this one is read-only: then the caller looks up the place again.
func (s *Store) writeConf(ctx context.Context, b *Bucket, own *shaper.Bucket, p place) (written bool, err error) {
	k := TaggedKeys(p.tag, own.KeyName())
	if k.Pool == tagOf(own) {
		if err := s.ConfigurePool(ctx, own); err != nil {
			return false, err
		}
	}
	settings, err := settingsOf(own)
	if err != nil {
		return false, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	stretches, err := s.timetableField(ctx, own)
	if err != nil {
		return false, err
	}
	args := []any{schemaVersion, own.Revision, WakeChannel, k.Name, BoolArg(s.Role == Authoritative), s.By, b.started.Load(), "generation", p.number(), FieldTimetable, stretches, fieldInFlightRule, inFlightRule(own)}
	reply, err := s.Run(ctx, lua.Configure, k.Of(lua.Configure), append(args, settings...)...)
	if err != nil {
		return false, fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	switch {
	case r.Err() != nil:
		return false, fmt.Errorf("bucket %q: script configure: %w", b.Name, r.Err())
	case code == lua.ConfigureLeft:
		return false, s.catchUp(ctx, own, p, r.Int(), r.Text())
	case code == lua.ConfigureExists:
		return false, nil
	case code == lua.ConfigureOtherFlows:
		return false, fmt.Errorf("bucket %q: %w", b.Name, errFlowsChanged(levelsOf(own), r.Int(), r.Int()))
	case code == lua.ConfigureObeys:
		s.obey(ctx, "bucket", b.Name, own.Revision, revision)
		return true, nil
	case code == lua.ConfigureNewerSchema:
		return false, newerSchema("bucket", b.Name, schema)
	}
	started, changed := r.Int(), r.Int()
	if s.Role == Authoritative {
		b.started.Store(started)
	}
	if changed > 0 {
		s.logOwnChange(ctx, "bucket", b.Name, k.Conf())
	}
	err = s.defineSchedules(ctx, b, own, p, started)
	return err == nil, err
}

// obey logs that another configuration is effective.
func (s *Store) obey(ctx context.Context, kind, name string, own, revision int64) {
	log := s.Log.With(kind, name, "own_revision", own, "revision", revision)
	if own == revision {
		log.WarnContext(ctx, "the configuration of a dispatcher that started later is in force and is obeyed")
	} else {
		log.WarnContext(ctx, "a newer configuration is in force and is obeyed")
	}
}

// ConfigurePool writes what scripts obey of a bucket's pool. Each of its buckets does.
func (s *Store) ConfigurePool(ctx context.Context, b *shaper.Bucket) error {
	if b.Pool == nil {
		return nil
	}
	return s.starts.once(b.Pool, func() error { return s.writePool(ctx, b.Pool) })
}

func (s *Store) writePool(ctx context.Context, p *shaper.Pool) error {
	args := []any{schemaVersion, p.Revision, WakeChannel, WakePool + p.Name, BoolArg(s.Role == Authoritative), s.By, s.starts.get(p)}
	reply, err := s.Run(ctx, lua.Configure, []string{PoolConf(p.Name)}, append(args, poolSettingsOf(p)...)...)
	if err != nil {
		return fmt.Errorf("pool %q: %w", p.Name, err)
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	switch {
	case r.Err() != nil:
		return fmt.Errorf("pool %q: script configure: %w", p.Name, r.Err())
	case code == lua.ConfigureObeys:
		s.obey(ctx, "pool", p.Name, p.Revision, revision)
	case code == lua.ConfigureNewerSchema:
		return newerSchema("pool", p.Name, schema)
	case code == lua.ConfigureWritten && s.Role == Authoritative:
		s.starts.set(p, r.Int())
		if r.Int() > 0 {
			s.logOwnChange(ctx, "pool", p.Name, PoolConf(p.Name))
		}
	}
	return r.Err()
}
