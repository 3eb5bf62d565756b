package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Indexed is a bucket that Redis knows.
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
	all, renamed, current := make([]Indexed, 0, len(entries)), map[string]bool{}, map[string]string{}
	for _, b := range s.All() {
		current[b.Keys.Name] = b.Name
	}
	for field, entry := range entries {
		if first, isLater := firstName(entry); isLater {
			renamed[first] = true
		} else if isBucketField(field) {
			all = append(all, Indexed{cmp.Or(current[field], field), TaggedKeys(entry, field)})
		}
	}
	maps.DeleteFunc(renamed, func(first string, _ bool) bool { return current[first] != "" })
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
