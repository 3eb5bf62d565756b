package dispatcher

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Schedules of buckets on three nodes of a Cluster, with flows and groups too: three dispatchers make one job of each fire that an
// operator asks for.
func TestSchedulesInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "--cluster-node-timeout", "30000")
	buckets, _ := onThree(t, c)
	buckets[1].Flow = &shaper.FlowSettings{GroupSettings: shaper.GroupSettings{Key: shaper.FlowKeyJob, Burst: 1}, MaxFlows: 10}
	buckets[2].Flow, buckets[2].Group = buckets[1].Flow, &shaper.GroupSettings{Key: shaper.FlowKeyJob, Burst: 1}
	for i := range buckets {
		buckets[i].Schedules = []shaper.Schedule{{
			Name: "s" + buckets[i].Name, Cron: "0 0 1 1 *", Job: shaper.ScheduledJob{Payload: []byte("1"), Flow: "f", Group: "g"},
		}}
	}
	conn := must.Get(redisconn.Connect(c.URL(), redisconn.Options{Timeout: rig.Patience}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: buckets}))(t)
	var mu sync.Mutex
	delivered, news := map[string]int{}, make(chan struct{}, 100)
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		mu.Lock()
		defer mu.Unlock()
		delivered[a.ID]++
		news <- struct{}{}
		return shaper.Done(200)
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 3 {
		d := must.Get(New(Config{Redis: conn, Buckets: buckets, Workers: rig.Workers(buckets, worker)}))(t)
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer running.Wait()
	defer stop()
	limit := time.After(30 * time.Second)
	for { // until the dispatchers have configured the buckets
		found := must.Get(client.Op.Schedules(ctx))(t)
		if len(found) == len(buckets) {
			break
		}
		select {
		case <-limit:
			t.Fatalf("known are %+v", found)
		case <-time.After(10 * time.Millisecond):
		}
	}
	var jobs []string
	for _, b := range buckets {
		job, asked, err := client.Op.As("ann").Schedule("s" + b.Name).Fire(ctx)
		if err != nil || !asked {
			t.Fatal(job, asked, err)
		}
		jobs = append(jobs, job)
	}
	for range jobs {
		select {
		case <-news:
		case <-limit:
			t.Fatal("not all jobs were delivered")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, job := range jobs {
		runs, err := client.Op.Schedule("s" + buckets[i].Name).Runs(ctx)
		if err != nil || len(runs) != 1 || runs[0].AskedBy != "ann" || delivered[job] != 1 {
			t.Errorf("%s was delivered %d times, runs %+v, %v", job, delivered[job], runs, err)
			continue
		}
		t.Logf("%s: %s after it was asked for", job, runs[0].Lateness())
	}
}
