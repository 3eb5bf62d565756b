package dispatcher

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// askedTogether is how many buckets share one EXISTS command.
const askedTogether = 50

// pipelined adds the commands of n queries to a pipeline and runs it: one round trip, in a cluster one per node, in parallel. A query goes to the
// node of its key. Each command holds its own error.
func pipelined(ctx context.Context, s *store.Store, n int, key func(n int) string, add func(pipe redis.Pipeliner, n int)) {
	if n == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	lua.Spread(ctx, s.Redis, n, key, func(some []int) {
		pipe := s.Redis.Pipeline()
		for _, i := range some {
			add(pipe, i)
		}
		lua.Exec(ctx, pipe)
	})
}

// anyThere returns the items that may have an existing key. Items share a command: if any key of a command exists, or the command failed, it returns
// all items of that command.
func anyThere[T any](ctx context.Context, s *store.Store, all []T, keys func(T) []string) (there []T) {
	together := askedTogether
	if _, ok := s.Redis.(*redis.ClusterClient); ok { // the keys are on several nodes
		together = 1
	}
	groups := slices.Collect(slices.Chunk(all, together))
	answers := make([]*redis.IntCmd, len(groups))
	pipelined(ctx, s, len(groups), func(g int) string { return keys(groups[g][0])[0] }, func(pipe redis.Pipeliner, g int) {
		var names []string
		for _, one := range groups[g] {
			names = append(names, keys(one)...)
		}
		answers[g] = pipe.Exists(ctx, names...)
	})
	for g, answer := range answers {
		if answer.Err() != nil || answer.Val() > 0 {
			there = append(there, groups[g]...)
		}
	}
	return there
}

// those returns the items for which are returns true.
func those[T any](all []T, are func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !are(one) })
}
