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

// Where a bucket's keys live. The keys of a bucket contain its first name and its hash tag: the name of its pool, or its first name.
// The index (tagsKey) says which tag a bucket has. pool_change.go changes that. Of a later name the index says which is the first one: see
// [firstName].

// elsewhereError is an ErrTagChanged with a text of its own, which names the bucket.
type elsewhereError struct{ text string }

func (e elsewhereError) Error() string { return e.text }
func (e elsewhereError) Unwrap() error { return shaper.ErrTagChanged }

func elsewheref(format string, args ...any) error {
	return elsewhereError{fmt.Sprintf(format, args...)}
}

// place is a bucket's entry in the index. The zero value means that Redis does not know the bucket.
type place struct {
	name       string // in the keys
	tag        string
	generation string // "<number> <tag left behind>", see lua/assign.lua; "" before the first change
	noted      bool   // the index has the later name that the configuration gives
	taken      bool   // it has another bucket of that name
}

func newPlace(tag string, generation int64, left string) place {
	return place{tag: tag, generation: strings.TrimSpace(fmt.Sprint(generation, " ", left))}
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

// fits reports that Redis has a bucket under another first name than its configuration says.
func (p place) fits(own *shaper.Bucket) error {
	switch {
	case p.taken:
		return elsewheref("bucket %q cannot be the renamed bucket %q: Redis has had another bucket %q before: choose another name", own.Name, own.RenamedFrom, own.Name)
	case p.name != own.KeyName():
		return elsewheref("bucket %q was renamed, and its jobs have its first name %q in Redis: set renamed_from = %q in its [[buckets]] table",
			own.Name, p.name, p.name)
	}
	return nil
}

// under returns the settings with the first name that Redis has of the bucket, which a read-only process obeys whatever its configuration says.
func (p place) under(own *shaper.Bucket) *shaper.Bucket {
	if p.name == own.KeyName() {
		return own
	}
	renamed := *own
	renamed.RenamedFrom = p.name
	if p.name == own.Name {
		renamed.RenamedFrom = ""
	}
	return &renamed
}

// generationSuffix ends the names of fields of the index that are no buckets. No bucket's name has a colon.
const generationSuffix = ":generation"

func isBucketField(field string) bool { return !strings.HasSuffix(field, generationSuffix) }

// placeOf reads where a bucket lives, in the round trip of the commands that come before; one round trip more where only Redis knows that it was
// renamed.
func (s *Store) placeOf(ctx context.Context, own *shaper.Bucket, before ...redis.Cmder) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	first := own.KeyName()
	fields := []any{"hmget", TagsKey, first, first + generationSuffix}
	if own.RenamedFrom != "" {
		fields = append(fields, own.Name)
	}
	cmd := redis.NewSliceCmd(ctx, fields...)
	if err := s.process(ctx, append(before, cmd)...); err != nil {
		return place{}, fmt.Errorf("look for the bucket: %w", err)
	}
	p := place{name: first}
	values := textsOf(cmd.Val(), 3) //nolint:mnd // three fields
	if len(cmd.Val()) != len(fields)-2 {
		return p, errors.New("look for the bucket: Redis gave a short answer")
	}
	if older, isLater := firstName(values[0]); isLater {
		return s.placeOf(ctx, &shaper.Bucket{Name: older})
	}
	p.tag, p.generation = values[0], values[1]
	p.noted, p.taken = values[2] == laterName(first), values[2] != "" && values[2] != laterName(first)
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
	p, err := s.placeOf(ctx, b)
	if err != nil || p.name != b.KeyName() || p.taken {
		return p, err
	}
	var missing []redis.Cmder // another process may be first
	if p.tag == "" {
		missing = append(missing, redis.NewBoolCmd(ctx, "hsetnx", TagsKey, p.name, tagOf(b)))
	}
	if b.RenamedFrom != "" && !p.noted {
		missing = append(missing, redis.NewBoolCmd(ctx, "hsetnx", TagsKey, b.Name, laterName(p.name)))
	}
	if len(missing) == 0 {
		return p, nil
	}
	now, err := s.placeOf(ctx, b, missing...)
	if err != nil && p.tag != "" { // without its later name in the index the bucket can be drained
		return p, nil
	}
	return now, err
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
		b.Name, poolText(tag, b.KeyName()), poolText(tagOf(b), b.KeyName()))
}

// LiveKeys returns the keys under which buckets live, whatever the configuration says. For a bucket that Redis does not know, they are the keys
// of the configuration, or the keys of a bucket in no pool.
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
	for range 2 { // once more for those that were renamed, as only Redis knows
		fields := make([]string, len(names))
		for i, name := range names {
			fields[i] = live[name].Name
		}
		tags, err := s.Redis.HMGet(ctx, TagsKey, fields...).Result()
		if err != nil {
			return live, fmt.Errorf("look for buckets: %w", err)
		}
		var renamed []string
		for i, name := range names {
			tag, known := tags[i].(string)
			if first, isLater := firstName(tag); isLater {
				live[name], renamed = BucketKeys(first), append(renamed, name)
			} else if known && tag != live[name].Tag() {
				live[name] = TaggedKeys(tag, live[name].Name)
			}
		}
		if names = renamed; len(names) == 0 {
			break
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
