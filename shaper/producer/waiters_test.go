package producer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// scriptCount is a hook that counts runs of scripts by their names, and round trips.
type scriptCount struct {
	mu      sync.Mutex
	scripts map[string]int
	trips   int
}

func (c *scriptCount) note(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips++
	for _, cmd := range cmds {
		if script := lua.ScriptOf(cmd); script != nil && cmd.Name() != "eval" { // once for a server that does not know it
			c.scripts[script.Name()]++
		}
	}
}

// take returns what was counted since it was called last.
func (c *scriptCount) take() (scripts map[string]int, trips int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	scripts, trips = c.scripts, c.trips
	c.scripts, c.trips = map[string]int{}, 0
	return scripts, trips
}

func (c *scriptCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *scriptCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

func (c *scriptCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(cmds...)
		return next(ctx, cmds)
	}
}

// TestManyWait: all waiters of a process share one request a second for each bucket, and one that missed the message of its job hears of
// the end within that second.
func TestManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const buckets, jobs, seconds = 3, 600, 20
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		t.Cleanup(mini.Close)
		var all []shaper.Bucket
		for i := range buckets {
			all = append(all, rig.Bucket(fmt.Sprint("b", i), 10))
		}
		conn := rig.BubbleClient(t, mini.Dial)
		count := &scriptCount{scripts: map[string]int{}}
		conn.AddHook(count)
		c := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: all}))(t)
		ctx, stop := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		heard := make(chan error, 1)
		for i := range buckets * jobs {
			job := shaper.Job{Bucket: all[i%buckets].Name, ID: fmt.Sprint("j", i), Payload: []byte("{}")}
			_, awaited, err := c.Await(t.Context(), job)
			must.OK(t, err)
			waiting.Go(func() {
				defer awaited.Stop()
				if _, err := awaited.Result(ctx); ctx.Err() == nil {
					heard <- err
				}
			})
		}
		<-time.After(2 * time.Second)
		count.take()
		<-time.After(seconds * time.Second)
		scripts, trips := count.take()
		// One look each 750 ms to 1 s, of two scripts for 600 jobs.
		if most := seconds * 4 / 3; scripts["ended"] > 2*buckets*most || trips > most || len(scripts) > 1 {
			t.Errorf("%d that wait cost %v in %d round trips in %d s", buckets*jobs, scripts, trips, seconds)
		}
		// There is no message of a job that was cancelled.
		began := time.Now()
		must.Get(c.Cancel(t.Context(), "b1", "j1"))(t)
		if err := <-heard; !errors.Is(err, shaper.ErrNoResult) || time.Since(began) > time.Second {
			t.Errorf("of a cancelled job: %v, after %s", err, time.Since(began))
		}
		if scripts, _ := count.take(); scripts["inspect_result"] != 1 {
			t.Errorf("a job of %d ended: %v", buckets*jobs, scripts)
		}
		stop()
		waiting.Wait()
		c.Close()
	})
}
