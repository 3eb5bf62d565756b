package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// If one script may touch both places of a bucket, the bucket changes its pool with all its data: its keys are renamed.

// together reports whether one script may touch both places of a bucket. In a cluster it may not.
func (s *Store) together(ctx context.Context, b *shaper.Bucket, from, to string) (bool, error) {
	keys := append(TaggedKeys(from, b.KeyName()).Of(lua.Relocate), TaggedKeys(to, b.KeyName()).Conf())
	_, err := s.Run(ctx, lua.Relocate, keys, "look", 0)
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bucket %q: change its pool: %w", b.Name, err)
	}
	return true, nil
}

// Modes of a rename to a key that exists at the new place: see lua/relocate.lua.
const (
	carryKeeps    = "keep"
	carryReplaces = "replace"
)

// carry renames the keys of a bucket that has moved. While no script obeys the bucket, nothing adds a flow or a group, so the two hashes name
// all of them. The hashes go last, so a process that completes the change finds what is left to do. Claims stay behind: they repeat the replies
// for leases, and a bucket that moves has no lease that a dispatcher may request again.
func (s *Store) carry(ctx context.Context, b *shaper.Bucket, from, to string, generation int64) error {
	old, now := TaggedKeys(from, b.KeyName()), TaggedKeys(to, b.KeyName())
	rename := func(mode string, names []string) error {
		for some := range slices.Chunk(names, carriedAtOnce) {
			pairs := make([]string, 0, 2*len(some))
			for _, name := range some {
				pairs = append(pairs, name, now.Prefix+name[len(old.Prefix):])
			}
			if _, err := s.relocate(ctx, b, from, now, pairs, "carry", generation, mode); err != nil {
				return err
			}
		}
		return nil
	}
	err := s.eachField(ctx, old.Flows(), func(flows []string) error {
		var names []string
		for _, flow := range flows {
			names = append(append(names, old.Places(flow)...), old.FlowDeparted(flow))
		}
		return rename(carryReplaces, names)
	})
	if err == nil {
		err = s.eachGroup(ctx, old, func(groups []string) error {
			var names []string
			for _, group := range groups {
				names = append(names, old.DueOfGroup(group), old.GroupDeparted(group))
			}
			return rename(carryReplaces, names)
		})
	}
	index := []string{old.DueGroups(), old.Groups(), old.Flows()}
	if err == nil {
		err = rename(carryKeeps, slices.DeleteFunc(old.ofBucket(time.Now()), func(name string) bool {
			return name == old.Claims() || slices.Contains(index, name)
		}))
	}
	if err == nil {
		err = rename(carryKeeps, index)
	}
	if err != nil {
		return fmt.Errorf("bucket %q: move its keys: %w", b.Name, err)
	}
	return nil
}

// awaitCarried waits while another process renames the keys of a bucket, and reports whether the bucket lives at the new place then. Of many
// producers, each would load Redis with the same renames.
func (s *Store) awaitCarried(ctx context.Context, b *shaper.Bucket, to string) bool {
	conf, before, since := TaggedKeys(to, b.KeyName()).Conf(), any(nil), time.Now()
	tick := time.NewTicker(carryPoll)
	defer tick.Stop()
	for time.Since(since) < carryIdle {
		found, err := s.Redis.HMGet(ctx, conf, FieldRateCount, "carried").Result()
		if err != nil || found[0] != nil {
			return err == nil
		}
		if found[1] != before {
			before, since = found[1], time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// eachGroup calls do with names of groups that have, or may have, a turn queue at a place that the bucket has left.
func (s *Store) eachGroup(ctx context.Context, k Keys, do func(names []string) error) error {
	for from := int64(0); ; from += copiedAtOnce {
		names, err := s.Redis.ZRange(ctx, k.DueGroups(), from, from+copiedAtOnce-1).Result()
		if err != nil {
			return fmt.Errorf("list its groups: %w", err)
		}
		if len(names) == 0 {
			break
		}
		if err := do(names); err != nil {
			return err
		}
	}
	return s.eachField(ctx, k.Groups(), do)
}

// eachField calls do with the fields of a hash, some at a time. A field may occur twice.
func (s *Store) eachField(ctx context.Context, key string, do func(names []string) error) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		fields, next, err := s.Redis.HScan(ctx, key, cursor, "", copiedAtOnce).Result()
		if err != nil {
			return fmt.Errorf("list its flows or groups: %w", err)
		}
		cursor = next
		for some := range slices.Chunk(fields, 2*copiedAtOnce) {
			names := make([]string, 0, len(some)/2)
			for i := 0; i < len(some); i += 2 {
				names = append(names, some[i])
			}
			if err := do(names); err != nil {
				return err
			}
		}
	}
	return nil
}
