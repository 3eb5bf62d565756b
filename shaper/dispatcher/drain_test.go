package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

func TestDispatcherDrainsEvenly(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		const jobs, rate = 200, 200
		b := rig.BucketAt(t, "even", fmt.Sprintf("%d/s", rate))
		c := must.Get(rig.NewActors(producer.Config{Redis: client, Buckets: []shaper.Bucket{b}}))(t)
		var history checker.History
		all := make(chan struct{}, jobs)
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			history.Delivered(a.ID, a.Number, time.Now())
			all <- struct{}{}
			return shaper.Done(200)
		})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		for range 2 {
			d := must.Get(New(Config{
				Redis: client, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker),
			}))(t)
			go func() { stopped <- d.Run(ctx) }()
		}
		for i := range jobs {
			receipts, err := c.Enqueue(ctx, shaper.Job{Bucket: "even", Payload: fmt.Appendf(nil, "%d", i)})
			if err != nil || receipts[0].Refusal != nil {
				t.Fatal(receipts, err)
			}
			history.Admitted(receipts[0].ID, time.Now())
		}
		for range jobs {
			<-all
		}
		cancel()
		for range 2 {
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}
		result := history.Check()
		if err := result.Err(); err != nil || result.Extra > 0 {
			t.Error(err, result)
		}
		infos, err := c.Op.BucketInfos(context.WithoutCancel(ctx))
		if err != nil || infos[0].Unfinished != 0 || infos[0].InFlight != 0 {
			t.Errorf("bucket is not empty: %+v %v", infos, err)
		}
		t.Log(result, "most in 100ms", result.MostIn(100*time.Millisecond), "in 1s", result.MostIn(time.Second))
	})
}
