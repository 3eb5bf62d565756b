package dispatcher

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// callCount is a hook that counts commands, and the round trips in which they are sent: a pipeline is one.
type callCount struct{ sent, trips atomic.Int64 }

func (c *callCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *callCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.sent.Add(1)
		c.trips.Add(1)
		return next(ctx, cmd)
	}
}

func (c *callCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.sent.Add(int64(len(cmds)))
		c.trips.Add(1)
		return next(ctx, cmds)
	}
}

// TestIdleBucketsCostFewCommands: an idle minute of a bucket costs 6 commands at most: two claims, two looks at its settings, and parts of those
// that ask about 50 buckets. It cost 29.
func TestIdleBucketsCostFewCommands(t *testing.T) {
	t.Parallel()
	const buckets, minutes, most = 60, 2, 7
	var all []shaper.Bucket
	for i := range buckets {
		all = append(all, rig.Bucket(fmt.Sprint("b", i), 10))
	}
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		t.Cleanup(mini.Close)
		conn, count := rig.BubbleClient(t, mini.Dial), &callCount{}
		conn.AddHook(count)
		worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
		d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: rig.Workers(all, worker)}))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		<-time.After(2 * time.Minute)
		before := count.sent.Load()
		<-time.After(minutes * time.Minute)
		sent := float64(count.sent.Load()-before) / buckets / minutes
		t.Logf("%.1f commands a minute for each bucket", sent)
		if sent > most {
			t.Errorf("%.1f commands a minute for each bucket, want %d at most", sent, most)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
