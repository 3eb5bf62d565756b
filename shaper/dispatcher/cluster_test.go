package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// onThree returns a bucket for each of three masters.
func onThree(t *testing.T, c *redistest.Cluster) (buckets []shaper.Bucket, masters []*redistest.Server) {
	t.Helper()
	for i := 0; len(buckets) < 3; i++ {
		b := rig.Bucket(fmt.Sprint("b", i), 100)
		if master := c.MasterOf(t, store.BucketKeys(b.Name).Conf()); !slices.Contains(masters, master) {
			buckets, masters = append(buckets, b), append(masters, master)
		}
	}
	return buckets, masters
}

// TestCluster: buckets on three nodes. Each is woken wherever it is; and when a
// node does not answer, only its bucket is not seen.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "--cluster-node-timeout", "30000") // nobody is elected here
	buckets, masters := onThree(t, c)
	conn := must.Get(redisconn.Connect(c.URL(), redisconn.Options{}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: buckets, Timeout: shaper.DefaultTimeout}))(t)
	var patrol lookCounter
	conn.AddHook(&patrol)
	arrived := make(chan string, 1)
	d := must.Get(New(Config{
		Redis: conn, Buckets: buckets,
		Workers: rig.Workers(buckets, shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			arrived <- a.Bucket
			return shaper.Done(200)
		})),
	}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	defer running.Wait()
	defer stop()

	for range 4 {
		for _, b := range buckets {
			patrol.wantWoken(t, func() {
				must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, Payload: []byte("1")}))(t)
				if got := <-arrived; got != b.Name {
					t.Errorf("a job of %s arrived for %s", got, b.Name)
				}
			})
		}
	}
	known, err := client.Op.KnownBuckets(t.Context())
	if err != nil || len(known) != 3 {
		t.Errorf("known are %v, %v", known, err)
	}
	stop()
	running.Wait()
	oneNodeHangs(t, client, buckets, masters)
}

func oneNodeHangs(t *testing.T, client *rig.Actors, buckets []shaper.Bucket, masters []*redistest.Server) {
	t.Helper()
	d := must.Get(New(Config{
		Redis: client.Conn, Buckets: buckets, Workers: rig.Workers(buckets, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })),
	}))(t)
	var loops []*bucketPatrol
	for _, b := range buckets {
		loops = append(loops, newBucketLoop(d, d.store.Known(b.Name), t.Context()).patrol)
	}
	look := func() (failed int) {
		for i, s := range d.checkBuckets(t.Context(), loops) {
			if s.err == nil {
				continue
			}
			failed++
			if i != 0 || !redisconn.Unavailable(s.err) || !strings.Contains(s.err.Error(), buckets[0].Name) {
				t.Errorf("bucket %s: %v", buckets[i].Name, s.err)
			}
		}
		return failed
	}
	must.Equal(t, look(), 0, "before, all are seen")
	masters[0].Stop()
	defer masters[0].Cont()
	must.Equal(t, look(), 1, "one of the three is not to be seen")
	infos, err := client.Op.BucketInfos(t.Context())
	if !redisconn.Unavailable(err) || !strings.Contains(err.Error(), buckets[0].Name) || strings.Contains(err.Error(), buckets[1].Name) {
		t.Errorf("BucketInfos: %v", err)
	}
	if len(infos) != 2 || infos[0].Name != buckets[1].Name || infos[1].Name != buckets[2].Name {
		t.Errorf("BucketInfos = %+v", infos)
	}
	if err := client.Ping(t.Context()); err != nil {
		t.Errorf("two masters are there: %v", err)
	}
	// Nor does anything of what a first call of a process does go to another node.
	for range 10 {
		for _, b := range buckets[1:] {
			first := must.Get(rig.NewActors(producer.Config{Redis: client.Conn, Buckets: buckets}))(t)
			if _, err := first.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, Payload: []byte("1")}); err != nil {
				t.Errorf("first enqueue at a node that answers: %v", err)
			}
		}
	}
	// Those who ask for the bucket that is away do not shut the others out.
	guarded := must.Get(rig.NewActors(producer.Config{
		Redis: client.Conn, Buckets: buckets, Timeout: time.Second,
		Breaker: redisconn.NewBreaker(redisconn.BreakerConfig{Failures: 1, Pause: time.Minute}),
	}))(t)
	for range 2 {
		if _, err := guarded.Enqueue(t.Context(), shaper.Job{Bucket: buckets[0].Name, Payload: []byte("1")}); !redisconn.Unavailable(err) {
			t.Errorf("enqueue at the node that hangs: %v", err)
		}
	}
	if _, err := guarded.Enqueue(t.Context(), shaper.Job{Bucket: buckets[1].Name, Payload: []byte("1")}); err != nil {
		t.Errorf("enqueue at a node that answers: %v", err)
	}
}
