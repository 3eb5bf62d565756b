package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A body that somebody else has written becomes a dead letter that can be
// listed and dropped, and holds nobody up.
func TestUnreadableBody(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		b := shaper.DefaultBucket()
		b.Name, b.Rate = "odd", admission.Rate{Count: 1000, Per: time.Second, Unit: admission.UnitRequests}
		delivered := make(chan string, 1)
		d := must.Get(New(Config{Redis: client, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome { delivered <- a.ID; return shaper.Done(200) }))}))(t)
		c := must.Get(rig.NewActors(producer.Config{Redis: client, Buckets: []shaper.Bucket{b}}))(t)
		k := store.BucketKeys(b.Name)
		must.OK(t, client.HSet(t.Context(), k.Body(), "odd", "0 5 AAAAAAAAAAAc1 {not JSON\nx").Err())
		must.OK(t, client.RPush(t.Context(), k.Queue(""), "odd").Err())
		must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, ID: "good", Payload: []byte("x")}))(t)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- d.Run(ctx) }()
		must.Equal(t, <-delivered, "good", "delivered")
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		dead, err := c.Op.Bucket(b.Name).Dead().List(t.Context(), 0, 10)
		if err != nil || len(dead) != 1 || dead[0].ID != "odd" || dead[0].Last.Detail == "" {
			t.Fatalf("dead letters: %+v %v", dead, err)
		}
		if n, err := c.Op.As("anna").Bucket(b.Name).Dead().DropAll(t.Context()); n != 1 || err != nil {
			t.Errorf("dropped %d: %v", n, err)
		}
	})
}
