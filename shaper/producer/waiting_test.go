package producer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// newSlow returns a client, in a bubble, whose round trips take a second once its bucket is known.
func newSlow(t *testing.T, timeout time.Duration) (*rig.Actors, *slowRedis) {
	t.Helper()
	mini := miniredis.NewMiniRedis()
	t.Cleanup(mini.Close)
	conn := &slowRedis{UniversalClient: redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
	t.Cleanup(func() { _ = conn.Close() })
	bucket := rig.Bucket("b", 10)
	bucket.Capacity = 100_000
	c := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{bucket}, Timeout: timeout}))(t)
	must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "first", Payload: []byte("x")}))(t)
	conn.takes.Store(int64(time.Second))
	return c, conn
}

// batchOf makes jobs of a caller.
func batchOf(caller string, call, jobs int) []shaper.Job {
	batch := make([]shaper.Job, jobs)
	for i := range batch {
		batch[i] = shaper.Job{Bucket: "b", Caller: caller, ID: fmt.Sprintf("%s-%d-%d", caller, call, i), Payload: []byte("x")}
	}
	return batch
}

// While a caller sends ten large batches in parallel, the job of another one waits for one of these. What does not reach Redis within the
// timeout is refused, and is not stored.
func TestLargeBatchesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newSlow(t, 10*time.Second)
		began := time.Now()
		var all sync.WaitGroup
		var in, refused atomic.Int64
		for call := range 10 {
			all.Go(func() {
				receipts, err := c.Enqueue(t.Context(), batchOf("loud", call, 1000)...)
				if err != nil {
					t.Error(err)
				}
				for i := range receipts {
					switch r := &receipts[i]; {
					case r.Refusal == nil:
						in.Add(1)
					case r.Refusal.Reason != shaper.ReasonOverloaded || r.Refusal.RetryAfter == 0 || r.ID == "" || !strings.Contains(r.Refusal.Detail, "not stored"):
						t.Errorf("%+v", r)
					default:
						refused.Add(1)
					}
				}
				if took := time.Since(began); took > 12*time.Second {
					t.Errorf("call %d was answered after %s", call, took)
				}
			})
		}
		synctest.Wait()
		receipts, err := c.Enqueue(t.Context(), batchOf("calm", 0, 1)...)
		if took := time.Since(began); err != nil || receipts[0].Refusal != nil || took > 5*time.Second {
			t.Errorf("after %s: %+v, %v", took, receipts, err)
		}
		all.Wait()
		conn.takes.Store(0)
		stored, err := conn.HLen(t.Context(), store.BucketKeys("b").Body()).Result()
		if err != nil || refused.Load() == 0 || in.Load()+refused.Load() != 10_000 || stored != in.Load()+2 {
			t.Errorf("%d are in, %d refused and %d stored: %v", in.Load(), refused.Load(), stored, err)
		}
	})
}

// While Redis answers nothing, a job that waits for its turn is no job of a busy process: the call ends with a failure of Redis.
func TestWaitForASilentRedisIsItsFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newSlow(t, 10*time.Second)
		conn.takes.Store(int64(time.Minute))
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.Enqueue(t.Context(), batchOf("loud", 0, 1000)...) })
		synctest.Wait()
		began := time.Now()
		receipts, err := c.Enqueue(t.Context(), batchOf("calm", 0, 2)...)
		if took := time.Since(began); !redisconn.Unavailable(err) || !strings.Contains(err.Error(), "nothing is stored") || receipts[0].Refusal != nil || took > 10*time.Second {
			t.Errorf("after %s: %+v, %v", took, receipts, err)
		}
		all.Wait()
		conn.takes.Store(0)
		if job, err := c.Job(t.Context(), "b", "calm-0-0"); !errors.Is(err, shaper.ErrNotFound) {
			t.Errorf("%+v, %v", job, err)
		}
	})
}

// A call that ends before its turn stores nothing, and says so.
func TestCallThatEndsBeforeItsTurnStoresNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newSlow(t, time.Minute)
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.Enqueue(t.Context(), batchOf("loud", 0, 1000)...) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		receipts, err := c.Enqueue(ctx, batchOf("calm", 0, 2)...)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing is stored") || receipts[0].ID != "calm-0-0" {
			t.Errorf("%+v, %v", receipts, err)
		}
		all.Wait()
		conn.takes.Store(0)
		if job, err := c.Job(t.Context(), "b", "calm-0-0"); !errors.Is(err, shaper.ErrNotFound) {
			t.Errorf("%+v, %v", job, err)
		}
	})
}
