package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
)

// A bucket that is renamed keeps its keys, which have its first name (see [shaper.Bucket.RenamedFrom]). So no key moves, and processes with
// either name work on the same jobs. The index has an entry for each later name, for processes that know only that one.

// laterMark begins what the index has of a later name. No tag begins with it.
const laterMark = "="

// laterName is the entry of a later name of the bucket with this first name.
func laterName(first string) string { return laterMark + first }

// firstName reads an entry of the index. ok is false where it is a tag.
func firstName(entry string) (first string, ok bool) { return strings.CutPrefix(entry, laterMark) }

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

// under returns the settings with the first name that Redis has of the bucket, by which a guest goes whatever its configuration says.
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

// Canonical returns the name of the bucket that was renamed from the given one, as the configuration says, else the given name.
func (s *Store) Canonical(name string) string {
	set := s.set.Load()
	if now := set.renamed[name]; now != "" && set.byName[name] == nil {
		return now
	}
	return name
}

// KeyName returns the name that scripts publish of a bucket: its first name, as far as this process knows.
func (s *Store) KeyName(bucket string) string {
	if b := s.Known(s.Canonical(bucket)); b != nil {
		return b.Keys.Name
	}
	return bucket
}

// Known to Redis: every bucket once.
type Indexed struct {
	Name string // the current name: as the configuration of this process says, else as the process says that wrote the settings
	Keys Keys
}

// Index returns the buckets that Redis knows, sorted by name. One round trip, and one more where buckets were renamed.
func (s *Store) Index(ctx context.Context) ([]Indexed, error) {
	if err := s.IfClosed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	entries, err := s.Redis.HGetAll(ctx, TagsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list the buckets: %w", err)
	}
	all, renamed := make([]Indexed, 0, len(entries)), map[string]bool{}
	for field, entry := range entries {
		if first, isLater := firstName(entry); isLater {
			renamed[first] = true
		} else if isBucketField(field) {
			all = append(all, Indexed{field, TaggedKeys(entry, field)})
		}
	}
	for _, b := range s.All() {
		if at := slices.IndexFunc(all, func(i Indexed) bool { return i.Keys.Name == b.Keys.Name }); at >= 0 {
			all[at].Name = b.Name
			delete(renamed, b.Keys.Name)
		}
	}
	if err := s.nameRenamed(ctx, all, renamed); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Indexed) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// nameRenamed gives the buckets with these first names the name that their settings say.
func (s *Store) nameRenamed(ctx context.Context, all []Indexed, renamed map[string]bool) error {
	if len(renamed) == 0 {
		return nil
	}
	pipe := s.Redis.Pipeline()
	names := map[int]*redis.StringCmd{}
	for i := range all {
		if renamed[all[i].Keys.Name] {
			names[i] = pipe.HGet(ctx, all[i].Keys.Conf(), fieldName)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil { //nolint:errorlint // of the first command, as it is
		return fmt.Errorf("read the names of buckets: %w", err)
	}
	for i, name := range names {
		if name.Val() != "" {
			all[i].Name = name.Val()
		}
	}
	return nil
}
