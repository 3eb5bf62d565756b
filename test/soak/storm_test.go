//go:build soak

package soak

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestRedisFreezes: Redis stands still for 3 s under load, twice as long as a
// call to it may take. Every script that was given up runs when it goes on.
func TestRedisFreezes(t *testing.T) {
	storm(t, 600, time.Second, func(t *testing.T, _ context.Context, server *redistest.Server, _ *faultproxy.Proxy) {
		server.Stop()
		frozen := time.Now()
		harness.Await(t, 10*time.Second, "3 s", func() bool { return time.Since(frozen) >= 3*time.Second })
		server.Cont()
	})
}

// TestStorms: what may happen to connections and scripts at any moment happens
// all the time.
func TestStorms(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		do    func(ctx context.Context, client *redis.Client, proxy *faultproxy.Proxy) error
	}{
		{"scripts_flushed", 5 * time.Millisecond, func(ctx context.Context, client *redis.Client, _ *faultproxy.Proxy) error {
			return client.ScriptFlush(ctx).Err()
		}},
		{"clients_killed", 100 * time.Millisecond, func(ctx context.Context, client *redis.Client, _ *faultproxy.Proxy) error {
			for _, kind := range []string{"normal", "pubsub"} {
				if err := client.ClientKillByFilter(ctx, "TYPE", kind, "SKIPME", "yes").Err(); err != nil {
					return err
				}
			}
			return nil
		}},
		{"connections_cut", 100 * time.Millisecond, func(_ context.Context, _ *redis.Client, proxy *faultproxy.Proxy) error {
			proxy.CutAll()
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			storm(t, 300, 5*time.Second, func(t *testing.T, ctx context.Context, server *redistest.Server, proxy *faultproxy.Proxy) {
				tick := time.NewTicker(c.every)
				defer tick.Stop()
				client, times := server.Client(), 0
				for {
					select {
					case <-ctx.Done():
						t.Logf("%d times", times)
						return
					case <-tick.C:
					}
					if err := c.do(ctx, client, proxy); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					times++
				}
			})
		})
	}
}

// storm has a fault happen while jobs are enqueued and delivered, by callers who
// try again; ctx of the fault ends when most have arrived. None may be lost and none come twice.
func storm(t *testing.T, jobs int, lease time.Duration, fault func(*testing.T, context.Context, *redistest.Server, *faultproxy.Proxy)) {
	t.Helper()
	const rate, callers = 200, 4
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server := redistest.Start(t)
		proxy, err := faultproxy.New(server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, Lease: lease, Hold: 500 * time.Millisecond, RedisURL: "redis://" + proxy.Addr()})
		s.Post("before", jobs/2)

		ctx, end := context.WithCancel(t.Context())
		defer end()
		var running sync.WaitGroup
		running.Go(func() { fault(t, ctx, server, proxy) })
		var mu sync.Mutex
		answers := map[int]int{}
		for caller := range callers {
			running.Go(func() {
				for i := range jobs / 2 / callers {
					id := fmt.Sprintf("c%d-%d", caller, i)
					tick := time.NewTicker(20 * time.Millisecond)
					for deadline := time.Now().Add(harness.Patience * 30 * time.Second); ; <-tick.C {
						status := s.Send(id) // the same id again and again makes one job
						mu.Lock()
						answers[status]++
						mu.Unlock()
						if status == http.StatusAccepted {
							break
						}
						if time.Now().After(deadline) {
							t.Errorf("job %s was never taken in: %d", id, status)
							break
						}
					}
					tick.Stop()
				}
			})
		}
		harness.Await(t, 30*time.Second, "most jobs have arrived", func() bool { return s.History.Check().Delivered >= jobs*3/4 })
		end()
		running.Wait()
		s.AwaitDelivered(30 * time.Second)
		harness.Await(t, 20*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
		r := s.History.Check()
		harness.Report(t, rate, r)
		t.Logf("answers by status: %v", answers)
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d jobs came twice: %v", len(r.Duplicated), r.Duplicated)
		}
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
	})
}
