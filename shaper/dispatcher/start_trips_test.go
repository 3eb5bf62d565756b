package dispatcher

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// TestStartsInFewRoundTrips: a dispatcher with 300 buckets that is 20 ms from Redis makes 32 round trips at most until all buckets
// sleep. One call of its own for each bucket would be 300. Half of the buckets have flows. A job waits in one bucket.
func TestStartsInFewRoundTrips(t *testing.T) {
	t.Parallel()
	const buckets, busy = 300, 7
	var all []shaper.Bucket
	for i := range buckets {
		if name := fmt.Sprint("b", i); i%2 == 0 {
			all = append(all, rig.Flowing(name, shaper.FlowKeyJob))
		} else {
			all = append(all, rig.Bucket(name, 10))
		}
	}
	for _, of := range []struct {
		what  string
		joins bool // before it runs, as `dispatcher run` does
		most  int64
	}{
		{"new buckets", true, 32},
		{"known buckets", true, 25},
		{"known buckets, not joined before", false, 25},
	} {
		t.Run(of.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mini := miniredis.NewMiniRedis()
				mini.ClockTTL(true)
				t.Cleanup(mini.Close)
				near := rig.BubbleClient(t, mini.Dial)
				clients := must.Get(rig.NewActors(producer.Config{Redis: near, Buckets: all}))(t)
				if of.what != "new buckets" {
					must.OK(t, clients.JoinPools(t.Context()))
				}
				conn, count := rig.BubbleClient(t, mini.Dial), &callCount{}
				conn.AddHook(count)
				conn.AddHook(far(10 * time.Millisecond))
				var delivered atomic.Int64
				worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
					delivered.Add(1)
					return shaper.Done(200)
				})
				d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: rig.Workers(all, worker)}))(t)
				began := time.Now()
				if of.joins {
					must.OK(t, d.JoinPools(t.Context()))
				}
				must.Get(clients.Enqueue(t.Context(), shaper.Job{Bucket: all[busy].Name, ID: "j", Payload: []byte("{}")}))(t)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				asleep := func() (n int) {
					for _, loop := range *d.loops.Load() {
						if loop.claims.sleeping.Load() {
							n++
						}
					}
					return n
				}
				for synctest.Wait(); asleep() < buckets && time.Since(began) < 10*time.Second; synctest.Wait() {
					<-time.After(time.Millisecond)
				}
				t.Logf("%d round trips, all buckets sleep after %s", count.trips.Load(), time.Since(began))
				if trips := count.trips.Load(); trips > of.most {
					t.Errorf("%d round trips, want %d at most", trips, of.most)
				}
				if <-time.After(time.Second); delivered.Load() != 1 {
					t.Errorf("%d jobs were delivered, want the one that waited", delivered.Load())
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
