package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// In a cluster, the two places of a bucket that changes its pool are in two slots. So only an empty bucket moves, and its settings are copied.

// copied is a key of an empty bucket whose contents move with the bucket.
type copied struct {
	name   string // without the prefix of the place
	isList bool
	most   int    // elements or pairs in one script
	cursor uint64 // of a hash
	read   int    // elements of a list so far
	ended  bool
}

// copySettings copies the data that moves with an empty bucket: each round trip reads, or writes, a part of every key.
func (s *Store) copySettings(ctx context.Context, b *shaper.Bucket, from, to string, generation int64) error {
	source, target := TaggedKeys(from, b.KeyName()), TaggedKeys(to, b.KeyName())
	var todo []*copied
	keys := []string{source.ParkedSettings(), source.Pace(), source.Count(), source.FlowSettings(), source.GroupSettings(), source.Schedules(), source.Charges(), source.Responses(), source.LearnedEstimates(), source.Bundles(), source.Departed()}
	for _, key := range append(keys, source.Uses(time.Now())...) {
		one := &copied{name: strings.TrimPrefix(key, source.Prefix), isList: key == source.Departed(), most: copiedAtOnce}
		if key == source.Schedules() {
			one.most = schedulesCopied
		}
		todo = append(todo, one)
	}
	for len(todo) > 0 {
		parts, err := s.readParts(ctx, source.Prefix, todo)
		if err != nil {
			return fmt.Errorf("bucket %q: read its settings: %w", b.Name, err)
		}
		var calls []lua.Call
		for i, c := range todo {
			// A hash may arrive in larger parts than requested.
			for texts := range slices.Chunk(parts[i].texts, 2*c.most) {
				args := []any{"put", generation, "hash", 0, parts[i].expires.Milliseconds()}
				if c.isList {
					args[2], args[3] = "list", c.read
					c.read += len(texts)
				}
				for _, text := range texts {
					args = append(args, text)
				}
				calls = append(calls, lua.Call{Script: lua.Relocate, Keys: append(target.Of(lua.Relocate), target.Prefix+c.name), Args: args})
			}
		}
		for _, result := range lua.RunAll(ctx, s.Redis, calls) {
			if _, err := readRelocate(b, from, target, "put", result.Reply, result.Err); err != nil {
				return err
			}
		}
		todo = slices.DeleteFunc(todo, func(c *copied) bool { return c.ended })
	}
	return nil
}

// part is a part of the contents of a key.
type part struct {
	texts   []string      // elements, or fields and values
	expires time.Duration // 0 or less: never
}

func (s *Store) readParts(ctx context.Context, prefix string, todo []*copied) ([]part, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	pipe := s.Redis.Pipeline()
	parts, take := make([]part, len(todo)), make([]func(), len(todo))
	for i, c := range todo {
		expires := pipe.PTTL(ctx, prefix+c.name)
		if c.isList {
			some := pipe.LRange(ctx, prefix+c.name, int64(c.read), int64(c.read+copiedAtOnce-1))
			take[i] = func() {
				parts[i] = part{some.Val(), expires.Val()}
				c.ended = len(some.Val()) < copiedAtOnce
			}
			continue
		}
		some := pipe.HScan(ctx, prefix+c.name, c.cursor, "", int64(c.most))
		take[i] = func() {
			parts[i].texts, c.cursor = some.Val()
			parts[i].expires, c.ended = expires.Val(), c.cursor == 0
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for _, do := range take {
		do()
	}
	return parts, nil
}
