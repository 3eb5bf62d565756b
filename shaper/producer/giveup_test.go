package producer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// barrier holds the commands of a client until it is open.
type barrier struct {
	came chan struct{} // told of each command that is held
	open chan struct{}
}

func (b barrier) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b barrier) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if lua.ScriptOf(cmd) != nil && !b.isOpen() {
			b.came <- struct{}{}
			<-b.open
		}
		return next(ctx, cmd)
	}
}

func (b barrier) isOpen() bool {
	select {
	case <-b.open:
		return true
	default:
		return false
	}
}

func (b barrier) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A call that gives up is still under way: what is kept of it is not used for another call,
// which would be answered by its batch.
func TestGivenUpCallIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	const given, others = 16, 64
	w := rig.NewWorld(t, rig.Bucket("b", 1))
	conn := rig.Connect(t, w.Server.Addr())
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{w.Bucket}, Timeout: time.Minute}))(t)
	if _, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "first", Payload: []byte("x")}); err != nil {
		t.Fatal(err) // from now on the bucket is configured
	}
	held := barrier{make(chan struct{}, given+others), make(chan struct{})}
	conn.AddHook(held)

	var leaving, all sync.WaitGroup
	ctx, giveUp := context.WithCancel(t.Context())
	for i := range given {
		leaving.Go(func() {
			if _, err := client.Enqueue(ctx, shaper.Job{Bucket: "b", ID: fmt.Sprint("given-", i), Payload: []byte("given up")}); err == nil {
				t.Error("it did not give up")
			}
		})
	}
	<-held.came
	giveUp()
	leaving.Wait()
	for i := range others {
		all.Go(func() {
			id := fmt.Sprint("other-", i)
			receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: id, Payload: []byte(id)})
			if err != nil || receipts[0].ID != id || receipts[0].State != shaper.StateQueued {
				t.Errorf("%s: %+v, %v", id, receipts, err)
			}
		})
	}
	close(held.open)
	all.Wait()
	for i := range others {
		id := fmt.Sprint("other-", i)
		if job := w.Job(id); job.State != shaper.StateQueued || string(job.Payload) != id {
			t.Errorf("%s: %+v", id, job)
		}
	}
	for i := range given {
		if job, err := w.Client.Job(t.Context(), "b", fmt.Sprint("given-", i)); err == nil && string(job.Payload) != "given up" {
			t.Errorf("%+v", job)
		}
	}
}
