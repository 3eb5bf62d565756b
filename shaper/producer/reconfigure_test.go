package producer_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A bucket that comes takes jobs, one that leaves is unknown, and so are its series; its jobs stay, and can be looked at.
func TestBucketsComeAndGo(t *testing.T) {
	t.Parallel()
	a, b := rig.Bucket("a", 1000), rig.Bucket("b", 1000)
	b.Limits = []admission.Limit{{Name: "l", Limit: rig.Rate("5/744h")}}
	registry := prometheus.NewRegistry()
	c := must.Get(rig.NewActors(producer.Config{Redis: redistest.Start(t).Client(), Buckets: []shaper.Bucket{a}, Registerer: registry}))(t)
	t.Cleanup(c.Close)
	job := shaper.Job{Bucket: "b", ID: "j", Payload: []byte("x")}
	for range 2 {
		if _, err := c.Enqueue(t.Context(), job); !errors.Is(err, shaper.ErrUnknownBucket) {
			t.Fatalf("before it comes: %v", err)
		}
		must.OK(t, c.Reconfigure([]shaper.Bucket{a, b}))
		if r, err := c.Enqueue(t.Context(), job); err != nil || r[0].Refusal != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if names := c.Buckets(); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("the buckets are %v", names)
		}
		must.Equal(t, len(rig.Scrape(t, registry, "tundish_admission_limit_refusals_total")), 3, "the limit has series")
		without := b
		without.Limits = nil
		must.OK(t, c.Reconfigure([]shaper.Bucket{a, without}))
		must.Equal(t, len(rig.Scrape(t, registry, "tundish_admission_limit_refusals_total")), 0, "a limit that left has series")
		must.OK(t, c.Reconfigure([]shaper.Bucket{a}))
		if series := rig.Scrape(t, registry, "tundish_departures_total"); len(series) != 1 {
			t.Errorf("the series of a bucket that left: %v", series)
		}
		if info, err := c.Job(t.Context(), "b", "j"); err != nil || info.State != shaper.StateQueued {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if infos, err := c.Op.KnownBuckets(t.Context()); err != nil || !slices.Contains(infos, "b") {
		t.Errorf("Redis knows %v, %v", infos, err)
	}
}

// Buckets come and go while callers enqueue. Each call is answered: a job is in, or its bucket is unknown. Close waits for all.
func TestReconfigureWhileCallersEnqueue(t *testing.T) {
	t.Parallel()
	a, b := rig.Bucket("a", 1000), rig.Bucket("b", 1000)
	a.Capacity, b.Capacity = 100_000, 100_000
	server := redistest.Start(t)
	c := must.Get(rig.NewActors(producer.Config{Redis: server.Client(), Buckets: []shaper.Bucket{a}, Registerer: prometheus.NewRegistry()}))(t)
	var callers sync.WaitGroup
	var in, unknown atomic.Int64
	reloaded := make(chan struct{})
	for n := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-reloaded:
					return
				default:
				}
				for _, bucket := range []string{"a", "b"} {
					r, err := c.Enqueue(t.Context(), shaper.Job{Bucket: bucket, ID: fmt.Sprint(n, "-", i), Payload: []byte("x")})
					switch {
					case err == nil && r[0].Refusal == nil:
						in.Add(1)
					case bucket == "b" && errors.Is(err, shaper.ErrUnknownBucket):
						unknown.Add(1)
					default:
						t.Errorf("%+v, %v", r, err)
						return
					}
				}
			}
		})
	}
	for i := range 100 {
		must.OK(t, c.Reconfigure([]shaper.Bucket{a, b}[:1+i%2]))
		must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: "a", ID: fmt.Sprint("r", i), Payload: []byte("x")}))(t)
		in.Add(1)
	}
	close(reloaded)
	callers.Wait()
	c.Close()
	kept := int64(0)
	for _, name := range []string{"a", "b"} {
		kept += server.Client().HLen(t.Context(), stored.Key(name, "body")).Val()
	}
	if kept != in.Load() {
		t.Errorf("%d jobs are in Redis, %d were taken", kept, in.Load())
	}
	t.Logf("100 reloads: %d jobs in, %d calls found the bucket unknown", in.Load(), unknown.Load())
}
