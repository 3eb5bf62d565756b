package producer_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// What Enqueue keeps from one call for the next may be used in another bubble: those
// who test their programs with testing/synctest have one each.
func TestEnqueueInBubbles(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			mini := miniredis.NewMiniRedis()
			t.Cleanup(mini.Close)
			conn := redis.NewClient(&redis.Options{
				Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { _ = conn.Close() })
			c := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{rig.Bucket("b", 10)}}))(t)
			must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x")}))(t)
		})
	}
}

// slowRedis has round trips that take time, and counts those under way.
type slowRedis struct {
	redis.UniversalClient
	takes, underWay, sent atomic.Int64
}

func (s *slowRedis) Process(ctx context.Context, cmd redis.Cmder) error {
	s.sent.Add(1)
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	<-time.After(time.Duration(s.takes.Load()))
	return s.UniversalClient.Process(ctx, cmd)
}

// Close waits for what callers who gave up have left under way; the calls beside it
// are answered or told that the client is closed, and nothing is sent after it.
func TestCloseOfAClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		t.Cleanup(mini.Close)
		conn := &slowRedis{UniversalClient: redis.NewClient(&redis.Options{
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})}
		t.Cleanup(func() { _ = conn.Close() })
		c := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{rig.Bucket("b", 10)}, Timeout: time.Minute}))(t)
		enqueue := func(ctx context.Context) error {
			_, err := c.Enqueue(ctx, shaper.Job{Bucket: "b", Payload: []byte("x")})
			return err
		}
		must.OK(t, enqueue(t.Context()))
		conn.takes.Store(int64(time.Second))
		var callers sync.WaitGroup
		var closed, in atomic.Int64
		for i := range 20 {
			callers.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Second/4)
					err := enqueue(ctx)
					cancel()
					switch {
					case errors.Is(err, shaper.ErrClosed):
						closed.Add(1)
						return
					case err == nil:
						in.Add(1)
					case !errors.Is(err, context.DeadlineExceeded):
						t.Error(err)
						return
					}
				}
			})
		}
		<-time.After(5500 * time.Millisecond)
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(c.Close)
		}
		closers.Wait()
		must.Equal(t, conn.underWay.Load(), 0, "commands are under way after Close")
		callers.Wait()
		if closed.Load() != 20 || in.Load() == 0 {
			t.Errorf("%d got in, %d found it closed", in.Load(), closed.Load())
		}
		before := conn.sent.Load()
		_, jobErr := c.Job(t.Context(), "b", "x")
		_, bucketErr := c.Bucket("b")
		for i, err := range []error{enqueue(t.Context()), jobErr, bucketErr, c.Ping(t.Context()), c.Reconfigure(nil)} {
			if !errors.Is(err, shaper.ErrClosed) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		must.Equal(t, conn.sent.Load()-before, 0, "commands were sent after Close")
	})
}
