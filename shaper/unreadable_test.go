package shaper

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// A body that somebody else has written becomes a dead letter that can be
// listed and dropped, and holds nobody up.
func TestUnreadableBody(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		b := DefaultBucket()
		b.Name, b.Worker, b.Rate = "odd", "test", admission.Rate{Count: 1000, Per: time.Second, Unit: admission.UnitRequests}
		delivered := make(chan string, 1)
		d, err := NewDispatcher(DispatcherConfig{Redis: client, Buckets: []Bucket{b}, Workers: map[string]Worker{
			"test": WorkerFunc(func(_ context.Context, a *Attempt) Outcome { delivered <- a.ID; return Done(200) }),
		}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := newActors(ClientConfig{Redis: client, Buckets: []Bucket{b}})
		if err != nil {
			t.Fatal(err)
		}
		k := bucketKeys(b.Name)
		if err := client.HSet(t.Context(), k.body(), "odd", "0 5 AAAAAAAAAAAc1 {not JSON\nx").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.RPush(t.Context(), k.queue(""), "odd").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Enqueue(t.Context(), Job{Bucket: b.Name, ID: "good", Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- d.Run(ctx) }()
		if id := <-delivered; id != "good" {
			t.Errorf("delivered %q", id)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		dead, err := c.op.DeadLetters(t.Context(), b.Name, 0, 10)
		if err != nil || len(dead) != 1 || dead[0].ID != "odd" || dead[0].Last.Detail == "" {
			t.Fatalf("dead letters: %+v %v", dead, err)
		}
		if n, err := c.op.DropAllDead(t.Context(), b.Name); n != 1 || err != nil {
			t.Errorf("dropped %d: %v", n, err)
		}
	})
}
