package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// RunConfigured runs a script that replies {1} if the bucket's conf is missing; it then writes the conf and runs the script again. It returns the
// reply without its first item, 0. All of it takes at most the store's timeout.
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

// Configure writes the settings of a bucket for the scripts, once. A read-only process writes what is missing and reads the effective settings.
// Its error is [ErrAdopted] if the place or the levels differ from this Bucket; then [Store.Known] returns another one. Concurrent callers wait
// for the first, no longer than their own ctx and the store's timeout.
func (s *Store) Configure(ctx context.Context, b *Bucket) error {
	if b.settlesOnly || b.Configured.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.configureOnce(ctx, b, false)
}

// configureOnce configures a bucket, and changes its pool first if it is to join: see join.
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
	if s.Role == ReadOnly {
		return s.ensureConfigured(ctx, b)
	}
	own := b.own.Load()
	for range poolChangeTries {
		p, err := s.located(ctx, own)
		if err == nil {
			err = p.fits(own)
		}
		written := false
		switch {
		case errors.Is(err, shaper.ErrTagChanged):
			return err
		case err != nil:
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		case join && p.left() != "":
			err = s.removeLeft(ctx, own, p)
		case p.tag == tagOf(own):
			written, err = s.writeConf(ctx, b, own, p)
		case join || s.wroteReadOnly(ctx, TaggedKeys(p.tag, own.KeyName())):
			err = s.changePool(ctx, own, p)
		default:
			return livesElsewhere(own, p.tag)
		}
		if err != nil && !errors.Is(err, errOvertaken) {
			return err
		}
		if written {
			b.joined.Store(true)
			b.Configured.Store(b.own.Load() == own) // else a reload came first: once more
			return nil
		}
	}
	return fmt.Errorf("bucket %q: %w", b.Name, errOvertaken)
}

// Use returns a bucket whose settings are in Redis, and are those that this process obeys.
func (s *Store) Use(ctx context.Context, name string) (*Bucket, error) {
	b, err := s.Bucket(name)
	for range poolChangeTries {
		if err != nil {
			return nil, err
		}
		if err = s.Configure(ctx, b); !errors.Is(err, ErrAdopted) {
			break
		}
		b, err = s.Bucket(name)
	}
	return b, err
}

// UseAny is Use. If UsesAll is set, it also returns a bucket that is not configured here, as Redis knows it.
func (s *Store) UseAny(ctx context.Context, name string) (*Bucket, error) {
	b, err := s.Use(ctx, name)
	if s.UsesAll && errors.Is(err, shaper.ErrUnknownBucket) {
		return s.Readable(ctx, name)
	}
	return b, err
}

// Join configures a bucket. The authoritative process moves it into the pool of its configuration, until it has been there once. Afterwards,
// another authoritative process that moved it elsewhere wins: it started later or has a higher revision. A read-only process follows the bucket.
func (s *Store) Join(ctx context.Context, b *Bucket) error {
	if b.joined.Load() {
		return s.Configure(ctx, b)
	}
	return s.configureOnce(ctx, b, true)
}

// JoinPools moves every bucket into the pool of the configuration, or out of one, in an authoritative process. A read-only process finds out
// where the buckets live. The buckets join concurrently and share round trips.
func (s *Store) JoinPools(ctx context.Context) error {
	all := s.All()
	return s.forEach(len(all), func(s *Store, i int) error {
		if err := s.Join(ctx, all[i]); !errors.Is(err, ErrAdopted) {
			return err
		}
		return nil
	})
}

// CheckPools reports the buckets that cannot change their pool as these settings ask: in a cluster, every bucket that is not empty. The checks
// share round trips.
func (s *Store) CheckPools(ctx context.Context, buckets []shaper.Bucket) error {
	return s.forEach(len(buckets), func(s *Store, i int) error {
		b := &buckets[i]
		p, err := s.placeOf(ctx, b)
		if err == nil {
			err = p.fits(b)
		}
		if err != nil || p.tag == "" || p.tag == tagOf(b) {
			return err
		}
		together, err := s.together(ctx, b, p.tag, tagOf(b))
		if err == nil && !together {
			_, err = s.relocate(ctx, b, p.tag, TaggedKeys(p.tag, b.KeyName()), nil, "look", 0)
		}
		return err
	})
}

// forEach calls do for the numbers from 0 to n-1, concurrently, with a store whose calls share round trips. It returns the errors in order.
func (s *Store) forEach(n int, do func(s *Store, i int) error) error {
	shared, errs := s.Sharing(), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(shared, i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
