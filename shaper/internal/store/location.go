package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Where a bucket's keys live. The keys of a bucket contain its hash tag: the name of its pool, or its own name.
// The index (tagsKey) says which tag a bucket has. pool_change.go changes that.

// elsewhereError is an ErrTagChanged with a text of its own, which names the bucket.
type elsewhereError struct{ text string }

func (e elsewhereError) Error() string { return e.text }
func (e elsewhereError) Unwrap() error { return shaper.ErrTagChanged }

func elsewheref(format string, args ...any) error {
	return elsewhereError{fmt.Sprintf(format, args...)}
}

// place is a bucket's entry in the index. The zero value means that Redis does not know the bucket.
type place struct {
	tag        string
	generation string // "<number> <tag left behind>", see lua/assign.lua; "" before the first change
}

func newPlace(tag string, generation int64, left string) place {
	return place{tag, strings.TrimSpace(fmt.Sprint(generation, " ", left))}
}

func (p place) number() int64 {
	text, _, _ := strings.Cut(p.generation, " ")
	n, _ := strconv.ParseInt(text, 10, 64) // 0 without one
	return n
}

// left returns the tag that the bucket had before, while keys are still to be removed there; else "".
func (p place) left() string {
	_, tag, _ := strings.Cut(p.generation, " ")
	return tag
}

// generationSuffix ends the names of fields of the index that are not buckets. No bucket's name has a colon.
const generationSuffix = ":generation"

func IsBucketField(field string) bool { return !strings.HasSuffix(field, generationSuffix) }

// placeOf reads where a bucket lives, in one round trip with the given commands, which run first.
func (s *Store) placeOf(ctx context.Context, bucket string, before ...redis.Cmder) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd := redis.NewSliceCmd(ctx, "hmget", TagsKey, bucket, bucket+generationSuffix)
	if err := s.process(ctx, append(before, cmd)...); err != nil {
		return place{}, fmt.Errorf("look for the bucket: %w", err)
	}
	var p place
	values := cmd.Val()
	if len(values) != 2 { //nolint:mnd // two fields
		return p, errors.New("look for the bucket: Redis gave a short answer")
	}
	p.tag, _ = values[0].(string)
	p.generation, _ = values[1].(string)
	return p, nil
}

// assign writes where a bucket lives, unless the index no longer says old.
func (s *Store) assign(ctx context.Context, bucket string, old, now place) (written bool, err error) {
	reply, err := s.Run(ctx, lua.Assign, []string{TagsKey}, bucket, old.tag, old.generation, now.tag, now.generation)
	return reply == int64(1), err
}

// located reads where a bucket lives. A new bucket gets the place of its configuration. The index is read first, because a Redis out of memory
// refuses a new bucket, and a known one must still be drained.
func (s *Store) located(ctx context.Context, b *shaper.Bucket) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	p, err := s.placeOf(ctx, b.Name)
	if err != nil || p.tag != "" {
		return p, err
	}
	return s.placeOf(ctx, b.Name, redis.NewBoolCmd(ctx, "hsetnx", TagsKey, b.Name, tagOf(b))) // another process may be first
}

// poolText describes the pool of a bucket with that tag, in a sentence.
func poolText(tag, bucket string) string {
	if tag == bucket {
		return "no pool"
	}
	return fmt.Sprintf("pool %q", tag)
}

// livesElsewhere returns the error for a bucket that is not where the configuration of this process has it.
func livesElsewhere(b *shaper.Bucket, tag string) error {
	return elsewheref("bucket %q is in %s, but this configuration has it in %s: use the current configuration, or reload or restart this process, which moves the bucket",
		b.Name, poolText(tag, b.Name), poolText(tagOf(b), b.Name))
}

// LiveKeys returns the keys under which buckets live, whatever the configuration says. For a bucket that Redis does not know, they are the keys
// of the configuration, or those of a bucket in no pool.
func (s *Store) LiveKeys(ctx context.Context, buckets ...string) (map[string]Keys, error) {
	live := make(map[string]Keys, len(buckets))
	for _, name := range buckets {
		live[name] = BucketKeys(name)
		if b := s.Known(name); b != nil {
			live[name] = b.Keys
		}
	}
	if len(buckets) == 0 {
		return live, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	names := slices.Compact(slices.Sorted(slices.Values(buckets)))
	tags, err := s.Redis.HMGet(ctx, TagsKey, names...).Result()
	if err != nil {
		return live, fmt.Errorf("look for buckets: %w", err)
	}
	for i, name := range names {
		if tag, ok := tags[i].(string); ok && tag != live[name].Tag(name) {
			live[name] = TaggedKeys(tag, name)
		}
	}
	return live, nil
}

// Readable returns a bucket whose jobs can be read. It is in the configuration, or known to Redis: removed from the configuration, or in another
// pool than the configuration says. Of the latter only name and levels are known. A bucket that this process has not used yet takes one more
// round trip.
func (s *Store) Readable(ctx context.Context, name string) (*Bucket, error) {
	b, unknown := s.Bucket(name)
	if unknown == nil && b.Configured.Load() || unknown != nil && !admission.ValidName(name) {
		return b, unknown
	}
	live, err := s.LiveKeys(ctx, name)
	if err != nil {
		return nil, err
	}
	if unknown == nil && live[name].Prefix == b.Keys.Prefix {
		return b, nil
	}
	found, err := s.unconfigured(ctx, name, live[name])
	if found != nil || err != nil {
		return found, err
	}
	return b, unknown
}

// unconfigured returns a bucket as Redis knows it under these keys, nil if Redis does not.
func (s *Store) unconfigured(ctx context.Context, name string, k Keys) (*Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	values, err := s.Redis.HMGet(ctx, k.Conf(), FieldRateCount, "flows").Result()
	if err != nil {
		return nil, fmt.Errorf("bucket %q: read its settings: %w", name, err)
	}
	if values[0] == nil {
		return nil, nil //nolint:nilnil // none is no fault
	}
	levels := codec.LevelsNone
	if text, ok := values[1].(string); ok {
		if levels, err = strconv.Atoi(text); err != nil || levels < codec.LevelsNone || levels > codec.LevelsGroups {
			return nil, fmt.Errorf("bucket %q: its data is of a newer program", name)
		}
	}
	settings := &shaper.Bucket{Name: name}
	if levels != codec.LevelsNone {
		settings.Flow = &shaper.FlowSettings{}
	}
	if levels == codec.LevelsGroups {
		settings.Group = &shaper.GroupSettings{}
	}
	if k.Pool != "" {
		settings.Pool = &shaper.Pool{Name: k.Pool}
	}
	return newBucket(settings, k.As(levels)), nil
}

// Strayed reports whether a bucket lives elsewhere since this process last looked. The next use of the bucket looks
// again.
func (s *Store) Strayed(ctx context.Context, name string) bool {
	b, err := s.Bucket(name)
	if err != nil || !b.Configured.Load() {
		return false
	}
	live, err := s.LiveKeys(ctx, name)
	if err != nil || live[name].Prefix == b.Keys.Prefix {
		return false
	}
	b.Configured.Store(false)
	return true
}
