package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// NotifiedBundles returns the argument by which scripts know which finished bundles get a callback.
func NotifiedBundles(c *shaper.Callbacks) string {
	switch {
	case c.Bucket == "":
		return "none"
	case c.URL == "":
		return "own"
	}
	return "all"
}

// Replies of open_bundle.lua other than success.
const (
	bundleTaken    = 1
	bundleFinished = 2
	bundlesFull    = 3
)

// OpenBundle runs open_bundle.lua.
func (s *Store) OpenBundle(ctx context.Context, bucket string, bundle *shaper.Bundle) (shaper.BundleInfo, error) {
	var none shaper.BundleInfo
	b, err := s.Use(ctx, bucket)
	if err != nil {
		return none, err
	}
	settings := b.Settings.Load()
	if err := settings.CheckBundle(bundle); err != nil {
		return none, err
	}
	r, err := s.RunConfigured(ctx, b, lua.OpenBundle, b.Keys.Of(lua.OpenBundle), bundle.ID, cmp.Or(shaper.CallerMark(bundle.Caller), "-"), bundle.Size, bundle.CallbackURL,
		b.Levels(), NotifiedBundles(&settings.Callbacks))
	if err != nil {
		return none, fmt.Errorf("bucket %q: open the bundle %q: %w", bucket, bundle.ID, err)
	}
	switch code := r.Int(); code {
	case bundleTaken:
		return none, fmt.Errorf("bucket %q: bundle %q: %w: choose another id", bucket, bundle.ID, shaper.ErrBundleTaken)
	case bundlesFull:
		most, held := r.Int(), r.Int()
		return none, fmt.Errorf("bucket %q: %w: it keeps %d, each for seven days after its last change, and the caller has %d: no more than it leaves free: use one again, or wait",
			bucket, shaper.ErrTooManyBundles, most, held)
	case bundleFinished:
		info, err := codec.OpenBundle(bucket, bundle.ID, r.Text())
		return info, cmp.Or(err, fmt.Errorf("bucket %q: bundle %q of %d jobs: %w, and can be changed no more", bucket, bundle.ID, info.Size, shaper.ErrBundleFinished))
	}
	info, err := codec.OpenBundle(bucket, bundle.ID, r.Text())
	return info, cmp.Or(r.Err(), err)
}

// Bundle returns the state of a bundle, or [shaper.ErrUnknownBundle].
func (s *Store) Bundle(ctx context.Context, bucket, id string) (shaper.BundleInfo, error) {
	b, err := s.Readable(ctx, bucket)
	if err != nil {
		return shaper.BundleInfo{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd := redis.NewStringCmd(ctx, "hget", b.Keys.Bundles(), id)
	switch err := s.process(ctx, cmd); {
	case errors.Is(err, redis.Nil):
		return shaper.BundleInfo{}, fmt.Errorf("bucket %q: %w: %q", bucket, shaper.ErrUnknownBundle, id)
	case err != nil:
		return shaper.BundleInfo{}, fmt.Errorf("bucket %q: read the bundle %q: %w", bucket, id, err)
	}
	return codec.OpenBundle(bucket, id, cmd.Val())
}

// BundleOwners returns the caller of each of these bundles, by id. It leaves out a bundle that the bucket does not have.
func (s *Store) BundleOwners(ctx context.Context, bucket string, ids map[string]bool) (map[string]shaper.Owner, error) {
	b, err := s.Readable(ctx, bucket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	names := slices.Sorted(maps.Keys(ids))
	args := []any{"hmget", b.Keys.Bundles()}
	for _, id := range names {
		args = append(args, id)
	}
	cmd := redis.NewSliceCmd(ctx, args...)
	if err := s.process(ctx, cmd); err != nil {
		return nil, fmt.Errorf("bucket %q: read its bundles: %w", bucket, err)
	}
	owners := make(map[string]shaper.Owner, len(names))
	for i, id := range names {
		if text, ok := cmd.Val()[i].(string); ok {
			info, err := codec.OpenBundle(bucket, id, text)
			if err != nil {
				return nil, err
			}
			owners[id] = info.Owner
		}
	}
	return owners, nil
}
