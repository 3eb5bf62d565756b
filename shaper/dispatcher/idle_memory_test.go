package dispatcher

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// TestIdleBucketsTakeLittleMemory: a dispatcher holds 10 KB of heap for an idle bucket at most, and no heartbeat runs. It held nearly 12 KB, and a
// heartbeat ran for 10 s after each look.
func TestIdleBucketsTakeLittleMemory(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	const buckets, most = 300, 10 << 10
	var all []shaper.Bucket
	for i := range buckets {
		all = append(all, rig.Bucket(fmt.Sprint("b", i), 10))
	}
	inUse := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		t.Cleanup(mini.Close)
		conn := rig.BubbleClient(t, mini.Dial)
		worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
		d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: rig.Workers(all, worker)}))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		<-time.After(2*time.Minute + 5*time.Second)
		synctest.Wait()
		heartbeats := 0
		for _, r := range *d.loops.Load() {
			if runs(&r.held.extender) {
				heartbeats++
			}
		}
		running := inUse()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		d = nil
		heap := (running - inUse()) / buckets
		t.Logf("%d bytes of heap a bucket, %d heartbeats", heap, heartbeats)
		if heap > most || heartbeats > 0 {
			t.Errorf("want %d bytes at most, and no heartbeat", most)
		}
	})
}
