package dispatcher

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// TestSlowestRate: at one an hour the first job leaves an hour after an empty
// start, and an idle dispatcher takes nothing before.
func TestSlowestRate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	b := rig.BucketAt(t, "slow", "1/h")
	c := must.Get(rig.NewActors(producer.Config{Redis: client, Buckets: []shaper.Bucket{b}}))(t)
	worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
		t.Error("a job left")
		return shaper.Done(200)
	})
	d := must.Get(New(Config{
		Redis: client, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker),
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- d.Run(ctx) }()
	must.Get(c.Enqueue(t.Context(), shaper.Job{Bucket: "slow", ID: "a", Payload: []byte("{}")}))(t)
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for slot := int64(0); slot == 0; <-tick.C {
		if time.Since(began) > 30*time.Second {
			t.Fatal("the bucket got no pace")
		}
		slot, _ = client.HGet(t.Context(), stored.Key("slow", "pace"), "slot").Int64() // 0 until there is one
		if off := time.Since(time.UnixMicro(slot)); slot != 0 && off.Abs() > 30*time.Second {
			t.Errorf("the bucket counts from %s ago, want from now", off)
		}
	}
	info, err := c.Job(t.Context(), "slow", "a")
	if err != nil || info.State != shaper.StateQueued {
		t.Errorf("job %+v, %v", info, err)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestFastestRates: tens of thousands a second are reached and not passed.
func TestFastestRates(t *testing.T) {
	for _, rate := range []int{30_000, 50_000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			client := redistest.Start(t).Client()
			b := rig.BucketAt(t, "fast", fmt.Sprintf("%d/s", rate))
			b.Capacity, b.MaxInFlight = 1_000_000, 1_000_000
			c := must.Get(rig.NewActors(producer.Config{Redis: client, Buckets: []shaper.Bucket{b}, Timeout: 30 * time.Second}))(t)
			jobs := rate / 10
			if redistest.Soak {
				jobs = 2 * rate
			}
			for left := jobs; left > 0; left -= 1000 {
				batch := make([]shaper.Job, min(left, 1000))
				for i := range batch {
					batch[i] = shaper.Job{Bucket: "fast", Payload: []byte("{}")}
				}
				must.Get(c.Enqueue(t.Context(), batch...))(t)
			}
			slots := make([]time.Time, jobs)
			var count atomic.Int64
			all := make(chan struct{})
			worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
				n := count.Add(1)
				if n <= int64(jobs) {
					slots[n-1] = a.Slot()
				}
				if n == int64(jobs) {
					close(all)
				}
				return shaper.Done(200)
			})
			d := must.Get(New(Config{
				Redis: client, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Concurrency: 20_000,
			}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			began := time.Now()
			go func() { stopped <- d.Run(ctx) }()
			select {
			case <-all:
			case <-time.After(5 * time.Minute):
				t.Fatalf("%d of %d left", count.Load(), jobs)
			}
			took := time.Since(began)
			cancel()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			first, last := slots[0], slots[0]
			for _, slot := range slots {
				if slot.Before(first) {
					first = slot
				}
				if slot.After(last) {
					last = slot
				}
			}
			reached := float64(jobs-1) / last.Sub(first).Seconds()
			t.Logf("%d jobs in %s; slots at %.0f/s", jobs, took.Round(time.Millisecond), reached)
			// A slot is told by this process's clock, and what the process thinks of the server's may be corrected meanwhile.
			const corrected = 10 * time.Millisecond
			if float64(jobs-1) > float64(rate)*(last.Sub(first)+corrected).Seconds() {
				t.Errorf("slots at %.0f/s, want at most %d/s", reached, rate)
			}
		})
	}
}
