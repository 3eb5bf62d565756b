package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/coalesce"
)

// sharedAtMost is how many calls share a round trip. This many scripts of 5 ms end within the timeout of one call.
const sharedAtMost = 128

// sharing runs commands so that concurrent callers share round trips. One pipeline is under way at a time, in a cluster one per node. Commands
// that arrive meanwhile go into the next one.
type sharing struct {
	redis.UniversalClient
	queue coalesce.Queue[*sharedCall]
}

// sharedCall are the commands of one caller.
type sharedCall struct {
	cmds []redis.Cmder
	done chan struct{}
}

// Sharing returns a store whose concurrent scripts share round trips. Use it for work on many buckets at once.
func (s *Store) Sharing() *Store {
	c := &sharing{UniversalClient: s.Redis}
	c.queue.Max = sharedAtMost
	c.queue.Send = func(some []*sharedCall) (deliver func()) {
		ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
		defer cancel()
		lua.Spread(ctx, s.Redis, len(some), func(n int) string { return keyOf(some[n].cmds[0]) }, func(part []int) {
			var cmds []redis.Cmder
			for _, n := range part {
				cmds = append(cmds, some[n].cmds...)
			}
			lua.TextOnce(cmds)
			pipe := s.Redis.Pipeline()
			for _, cmd := range cmds {
				_ = pipe.Process(ctx, cmd) // queues
			}
			lua.Exec(ctx, pipe)
		})
		for _, one := range some {
			close(one.done)
		}
		return nil
	}
	other := *s
	other.sharing = c
	return &other
}

// keyOf returns the first key of a command: a run of a script has the script and the number of keys before it.
func keyOf(cmd redis.Cmder) string {
	args, at := cmd.Args(), 1
	if lua.ScriptOf(cmd) != nil {
		at = 3
	}
	if len(args) <= at {
		return ""
	}
	key, _ := args[at].(string)
	return key
}

// Process implements [lua.Client].
func (c *sharing) Process(ctx context.Context, cmd redis.Cmder) error { return c.process(ctx, cmd) }

func (c *sharing) process(ctx context.Context, cmds ...redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	call := &sharedCall{cmds, make(chan struct{})}
	c.queue.Add(call)
	<-call.done
	return firstError(cmds)
}

// process runs commands of one bucket in one round trip, which it may share.
func (s *Store) process(ctx context.Context, cmds ...redis.Cmder) error {
	if s.sharing != nil {
		return s.sharing.process(ctx, cmds...)
	}
	if len(cmds) == 1 {
		return s.Redis.Process(ctx, cmds[0])
	}
	pipe := s.Redis.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // queues
	}
	lua.Exec(ctx, pipe)
	return firstError(cmds)
}

func firstError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}
