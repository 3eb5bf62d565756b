package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
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

// Configure writes what the scripts obey, once. Of a guest it writes what is missing, and finds out what is in force: the error is
// [ErrAdopted] where that is at another place, or parted into other levels, than this Bucket; then [Store.Known] is another one.
// Concurrent callers wait for the first, no longer than their own ctx and the store's timeout.
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
	if s.Role == Guest {
		return s.meet(ctx, b)
	}
	own := b.own.Load()
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
		case join || s.ofGuest(ctx, TaggedKeys(p.tag, b.Name)):
			err = s.changePool(ctx, own, p)
		default:
			return livesElsewhere(own, p.tag)
		}
		if err != nil && !errors.Is(err, errOvertaken) {
			return err
		}
		if written {
			b.joined.Store(true)
			b.Configured.Store(b.own.Load() == own) // else a reload came between: once more
			return nil
		}
	}
	return fmt.Errorf("bucket %q: %w", b.Name, errOvertaken)
}

// writeConf writes what the scripts obey to the place where a bucket lives. It returns false if the bucket does not
// live there any more, or if another process was first and this one is a guest: then the caller has to look again.
func (s *Store) writeConf(ctx context.Context, b *Bucket, own *shaper.Bucket, p place) (written bool, err error) {
	k := TaggedKeys(p.tag, b.Name)
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
	args := []any{schemaVersion, own.Revision, WakeChannel, b.Name, BoolArg(s.Role == Owner), s.By, b.started.Load(), "generation", p.number(), FieldTimetable, stretches}
	reply, err := s.Run(ctx, lua.Configure, k.Of(lua.Configure), append(args, settings...)...)
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
	case code == configureExists:
		return false, nil
	case code == 3:
		return false, fmt.Errorf("bucket %q: %w", b.Name, errFlowsChanged(levelsOf(own), r.Int(), r.Int()))
	case code == 1:
		s.obey(ctx, "bucket", b.Name, own.Revision, revision)
		return true, nil
	case code == 2:
		return false, fmt.Errorf("bucket %q: its data has schema %d, this program knows %d: use a newer program", b.Name, schema, schemaVersion)
	case code == configureOld:
		return false, fmt.Errorf("bucket %q: its data has schema %d, and it holds %s: drain it with the version of before, then start this one, which knows schema %d",
			b.Name, schema, readHoldings(r), schemaVersion)
	}
	started, changed := r.Int(), r.Int()
	if s.Role == Owner {
		b.started.Store(started)
	}
	if changed > 0 {
		s.logOwnChange(ctx, "bucket", b.Name, k.Conf())
	}
	err = s.defineSchedules(ctx, b, own, p, started)
	return err == nil, err
}

// obey logs that another configuration is in force.
func (s *Store) obey(ctx context.Context, kind, name string, own, revision int64) {
	text := "a newer configuration is in force and is obeyed"
	if own == revision {
		text = "the configuration of a dispatcher that started later is in force and is obeyed"
	}
	s.Log.WarnContext(ctx, text, kind, name, "own_revision", own, "revision", revision)
}

// ConfigurePool writes what scripts obey of a bucket's pool. Each of its buckets does.
func (s *Store) ConfigurePool(ctx context.Context, b *shaper.Bucket) error {
	p := b.Pool
	if p == nil {
		return nil
	}
	args := []any{schemaVersion, p.Revision, WakeChannel, WakePool + p.Name, BoolArg(s.Role == Owner), s.By, s.starts.get(p)}
	reply, err := s.Run(ctx, lua.Configure, []string{PoolConf(p.Name)}, append(args, poolSettingsOf(p)...)...)
	if err != nil {
		return fmt.Errorf("pool %q: %w", p.Name, err)
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	switch {
	case r.Err() != nil:
		return fmt.Errorf("pool %q: script configure: %w", p.Name, r.Err())
	case code == 1:
		s.obey(ctx, "pool", p.Name, p.Revision, revision)
	case code == 2:
		return fmt.Errorf("pool %q: its data has schema %d, this program knows %d: use a newer program", p.Name, schema, schemaVersion)
	case code == 0 && s.Role == Owner:
		s.starts.set(p, r.Int())
		if r.Int() > 0 {
			s.logOwnChange(ctx, "pool", p.Name, PoolConf(p.Name))
		}
	}
	return r.Err()
}

// Join configures a bucket. An owner brings it into the pool that its configuration says first, until
// it has been there once. Afterwards, where another owner has it elsewhere, that process started later or has
// a higher revision: it wins. A guest goes to where the bucket lives.
func (s *Store) Join(ctx context.Context, b *Bucket) error {
	if b.joined.Load() {
		return s.Configure(ctx, b)
	}
	return s.configureOnce(ctx, b, true)
}

// JoinPools brings every bucket into the pool that the configuration of an owner says, or out of one. A guest finds out where it lives.
func (s *Store) JoinPools(ctx context.Context) error {
	var errs []error
	for _, b := range s.All() {
		if err := s.Join(ctx, b); err != nil && !errors.Is(err, ErrAdopted) {
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
