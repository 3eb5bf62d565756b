package dispatcher

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// lookCounter is a hook of a dispatcher's client that counts the looks of its patrol.
type lookCounter struct{ looks atomic.Int64 }

func (c *lookCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *lookCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *lookCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if key, ok := cmds[0].Args()[1].(string); ok && cmds[0].Name() == "zrange" && strings.HasSuffix(key, ":leases") {
			c.looks.Add(1)
		}
		return next(ctx, cmds)
	}
}

// wantWoken has deliver, which waits until a job has come, do so until one came without
// a look of the patrol: the dispatcher was woken for it. Where nobody wakes it, no job
// comes before a look, and on a slow machine some look comes before a job by chance.
func (c *lookCounter) wantWoken(t *testing.T, deliver func()) {
	t.Helper()
	for range 10 {
		before := c.looks.Load()
		if deliver(); c.looks.Load() == before {
			return
		}
	}
	t.Fatalf("of 10 jobs none came without a look of the patrol")
}
