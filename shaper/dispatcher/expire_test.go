package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Whatever keeps the jobs of a bucket from leaving, those that have expired make room for new ones within seconds. Each is logged and
// counted once.
func TestExpiredJobsMakeRoom(t *testing.T) {
	slow := func(b *shaper.Bucket) { b.Rate.Per = time.Hour }
	for name, c := range map[string]struct {
		of     shaper.Bucket
		change func(*shaper.Bucket)
		stop   func(ctx context.Context, a *rig.Actors) error
	}{
		"paused":     {rig.Bucket("b", 1), slow, func(ctx context.Context, a *rig.Actors) error { return a.Op.As("t").Bucket("b").Pause(ctx, "r") }},
		"slow":       {rig.Bucket("b", 1), slow, nil},
		"with flows": {rig.Flowing("b", shaper.FlowKeyJob), slow, func(ctx context.Context, a *rig.Actors) error { return a.Op.As("t").Bucket("b").Pause(ctx, "r") }},
		"its flow is paused": {rig.Flowing("b", shaper.FlowKeyJob), slow, func(ctx context.Context, a *rig.Actors) error {
			return a.Op.As("t").Bucket("b").Flow("f").Pause(ctx, "r")
		}},
		"with groups":       {rig.Grouped("b", 1), slow, func(ctx context.Context, a *rig.Actors) error { return a.Op.As("t").Bucket("b").Pause(ctx, "r") }},
		"no room in flight": {rig.Bucket("b", 100), func(b *shaper.Bucket) { b.MaxInFlight = 1 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := miniredis.NewMiniRedis()
				t.Cleanup(mini.Close)
				conn, b := rig.BubbleClient(t, mini.Dial), c.of
				b.Capacity = 20
				c.change(&b)
				client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
				hangs := shaper.WorkerFunc(func(ctx context.Context, _ *shaper.Attempt) shaper.Outcome {
					<-ctx.Done()
					return shaper.Returned("stopped")
				})
				log, registry := &lockedBuffer{}, prometheus.NewPedanticRegistry()
				d := must.Get(New(Config{Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, hangs), Registerer: registry,
					Logger: slog.New(slog.NewTextHandler(log, nil))}))(t)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- d.Run(ctx) }()
				<-time.After(time.Second)
				if c.stop != nil {
					must.OK(t, c.stop(ctx, client))
				}
				put := func(id string, expires time.Duration) *shaper.Refusal {
					t.Helper()
					job := shaper.Job{Bucket: "b", ID: id, Payload: []byte("x"), ExpiresIn: expires}
					if b.Flow != nil {
						job.Flow = "f"
					}
					if b.Group != nil {
						job.Group = "g"
					}
					receipts := must.Get(client.Enqueue(ctx, job))(t)
					return receipts[0].Refusal
				}
				admitted := 0
				for i := range 2 * b.Capacity {
					expires := 30 * time.Second
					if i < 5 { // what heads the list does not expire
						expires = 0
					}
					if put(fmt.Sprint("j", i), expires) == nil {
						admitted++
					}
				}
				<-time.After(20 * time.Second)
				if refused := put("early", 0); refused == nil || refused.Reason != shaper.ReasonBucketFull {
					t.Errorf("before the others expire: %+v", refused)
				}
				<-time.After(13 * time.Second)
				if refused := put("new", 0); refused != nil {
					t.Errorf("three seconds after the others have expired: %+v", refused)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				counted := rig.Scrape(t, registry, "tundish_jobs_expired_total")["tundish_jobs_expired_total{bucket=b}"]
				if logged := strings.Count(log.text.String(), "cause=expired"); counted < 15 || logged != int(counted) {
					t.Errorf("of %d jobs %.0f expired, and %d are logged", admitted, counted, logged)
				}
			})
		})
	}
}
