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
	"github.com/tundish-io/tundish/internal/redistest"
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
	c, err := rig.NewActors(producer.Config{Redis: redistest.Start(t).Client(), Buckets: []shaper.Bucket{a}, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	job := shaper.Job{Bucket: "b", ID: "j", Payload: []byte("x")}
	for range 2 {
		if _, err := c.Enqueue(t.Context(), job); !errors.Is(err, shaper.ErrUnknownBucket) {
			t.Fatalf("before it comes: %v", err)
		}
		if err := c.Reconfigure([]shaper.Bucket{a, b}); err != nil {
			t.Fatal(err)
		}
		if r, err := c.Enqueue(t.Context(), job); err != nil || r[0].Refusal != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if names := c.Buckets(); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("the buckets are %v", names)
		}
		if n := len(rig.Scrape(t, registry, "tundish_admission_limit_refusals_total")); n != 3 {
			t.Errorf("the limit has %d series", n)
		}
		without := b
		without.Limits = nil
		if err := c.Reconfigure([]shaper.Bucket{a, without}); err != nil {
			t.Fatal(err)
		}
		if n := len(rig.Scrape(t, registry, "tundish_admission_limit_refusals_total")); n != 0 {
			t.Errorf("a limit that left has %d series", n)
		}
		if err := c.Reconfigure([]shaper.Bucket{a}); err != nil {
			t.Fatal(err)
		}
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
	c, err := rig.NewActors(producer.Config{Redis: server.Client(), Buckets: []shaper.Bucket{a}, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
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
		if err := c.Reconfigure([]shaper.Bucket{a, b}[:1+i%2]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "a", ID: fmt.Sprint("r", i), Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		in.Add(1)
	}
	close(reloaded)
	callers.Wait()
	c.Close()
	kept := int64(0)
	for _, name := range []string{"a", "b"} {
		kept += server.Client().HLen(t.Context(), "tundish:{"+name+"}:b:"+name+":body").Val()
	}
	if kept != in.Load() {
		t.Errorf("%d jobs are in Redis, %d were taken", kept, in.Load())
	}
	t.Logf("100 reloads: %d jobs in, %d calls found the bucket unknown", in.Load(), unknown.Load())
}
