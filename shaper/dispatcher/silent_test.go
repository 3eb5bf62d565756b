package dispatcher

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// TestStopHasAMargin: a stop takes the shutdown timeout and 4 s at most, whatever calls to a silent Redis are under way when it begins: the chart gives
// it 5 s. The clock of the bubble has no noise, and a call that is under way ends at its timeout, whatever becomes of its context.
func TestStopHasAMargin(t *testing.T) {
	t.Parallel()
	for _, shutdown := range []time.Duration{time.Nanosecond, time.Second, 30 * time.Second} {
		for _, silent := range []time.Duration{0, 700 * time.Millisecond, 1499 * time.Millisecond, 9 * time.Second} { // before the stop
			t.Run(fmt.Sprint(shutdown, " ", silent), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					took, err := stopInSilence(t, shutdown, silent)
					t.Log(took, err)
					if most := shutdown + 4*time.Second; took > most || err == nil {
						t.Errorf("the stop takes %s, want at most %s (%v)", took, most, err)
					}
				})
			})
		}
	}
}

// stopInSilence stops a dispatcher that claims, sends heartbeats and has 20 deliveries under way, when Redis has been silent for so long.
func stopInSilence(t *testing.T, shutdown, silent time.Duration) (took time.Duration, err error) {
	t.Helper()
	store := miniredis.NewMiniRedis()
	store.ClockTTL(true)
	t.Cleanup(store.Close)
	b := rig.Bucket("b", 100)
	client := must.Get(rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}}))(t)
	jobs := make([]shaper.Job, 2000)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprint("j", i), Payload: []byte("{}")}
	}
	for i := 0; i < len(jobs); i += 500 {
		must.Get(client.Enqueue(t.Context(), jobs[i:i+500]...))(t)
	}
	var count atomic.Int64
	worker := shaper.WorkerFunc(func(ctx context.Context, _ *shaper.Attempt) shaper.Outcome {
		if count.Add(1) <= 20 {
			<-ctx.Done()
			return shaper.Retry("interrupted", "")
		}
		return shaper.Done(200)
	})
	hook := &silence{}
	conn := rig.BubbleClient(t, func() (net.Conn, error) { return store.Dial() })
	conn.AddHook(hook)
	d := must.Get(New(Config{
		Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Program: "dispatcher", ShutdownTimeout: shutdown,
	}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	<-time.After(4990 * time.Millisecond)
	hook.begun.Store(true)
	<-time.After(silent + 60*time.Millisecond) // half a horizon: a claim is under way
	began := time.Now()
	stop()
	err = <-ended
	return time.Since(began), err
}

// silence is a hook for which Redis answers nothing once it has begun.
type silence struct{ begun atomic.Bool }

func (s *silence) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *silence) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !s.begun.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(timeOut(ctx))
		return cmd.Err()
	}
}

func (s *silence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !s.begun.Load() {
			return next(ctx, cmds)
		}
		err := timeOut(ctx)
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// timeOut returns at the deadline of a call, as go-redis does: one that has begun does not end with its context.
func timeOut(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if deadline, ok := ctx.Deadline(); ok {
		<-time.After(time.Until(deadline))
	} else {
		<-ctx.Done()
	}
	return os.ErrDeadlineExceeded
}
