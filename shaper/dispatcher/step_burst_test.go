package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// offsetClock is the clock of a store in a bubble: that of the bubble and an offset, which
// a test sets.
type offsetClock struct {
	store *miniredis.Miniredis

	mu     sync.Mutex
	offset time.Duration
}

// run moves the clock until ctx ends.
func (c *offsetClock) run(ctx context.Context) {
	for sleep(ctx, time.Millisecond) {
		c.mu.Lock()
		c.store.SetTime(time.Now().Add(c.offset))
		c.mu.Unlock()
	}
}

func (c *offsetClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
	c.store.SetTime(time.Now().Add(c.offset))
}

// The clock of Redis steps forwards, again and again: the time that it skips fills no burst, however few workers
// there are to take it.
func TestStepForwardsFillsNoBurst(t *testing.T) {
	t.Parallel()
	const rate, burst, jobs = 1, 50, 400
	counts := []int{3}
	if redistest.Soak {
		counts = []int{1, 3}
	}
	for _, dispatchers := range counts {
		for name, change := range map[string]func(b *shaper.Bucket){
			"bucket": func(b *shaper.Bucket) { b.Rate.Count, b.Burst = rate, burst },
			"pool": func(b *shaper.Bucket) {
				pool := shaper.Pool{Name: "p", Rate: b.Rate, Burst: burst}
				pool.Rate.Count = rate
				b.Pool, b.Burst = &pool, 100
			},
			"flow": func(b *shaper.Bucket) {
				f := shaper.DefaultFlowSettings()
				f.Key, f.Rate, f.Burst = shaper.FlowKeyJob, b.Rate, burst
				f.Rate.Count = rate
				b.Flow = &f
			},
		} {
			t.Run(fmt.Sprint(name, ", ", dispatchers, " dispatchers"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := rig.Bucket("b", 1000)
					change(&b)
					departures := throughSteps(t, b, dispatchers, jobs, false)
					t.Logf("%d departures in %s", len(departures), departures[len(departures)-1].Sub(departures[0]))
					for i := range departures {
						for j := i + burst; j < len(departures); j++ {
							// A quarter of a second is what a permit may be late.
							window := departures[j].Sub(departures[i]) + 250*time.Millisecond
							if most := rate*window.Seconds() + burst; float64(j-i+1) > most {
								t.Fatalf("%d departures in %s, want %.1f at most", j-i+1, window, most)
							}
						}
					}
					if len(departures) < burst+10 {
						t.Errorf("%d departures: the rate is not reached", len(departures))
					}
				})
			})
		}
	}
}

// A dispatcher starts as the clock of Redis steps forwards, while those that could tell the step sleep: they wait for a quota.
func TestStartBesideAStepPassesNoQuota(t *testing.T) {
	t.Parallel()
	const quota, jobs = 30, 200
	for name, change := range map[string]func(b *shaper.Bucket){
		"bucket": func(b *shaper.Bucket) { b.Quotas = []admission.Rate{rig.RateOf(quota, 50*time.Second)} },
		"flow": func(b *shaper.Bucket) {
			f := shaper.DefaultFlowSettings()
			f.Key, f.Rate, f.Quotas = shaper.FlowKeyJob, b.Rate, []admission.Rate{rig.RateOf(quota, 50*time.Second)}
			b.Flow = &f
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := rig.Bucket("b", 1000)
				change(&b)
				departures := throughSteps(t, b, 2, jobs, true)
				for i := range departures {
					if j := i + quota; j < len(departures) && departures[j].Sub(departures[i]) < 50*time.Second {
						t.Fatalf("%d departures in %s, the quota is %d in 50 s", quota+1, departures[j].Sub(departures[i]), quota)
					}
				}
				if len(departures) < quota {
					t.Errorf("%d departures", len(departures))
				}
			})
		})
	}
}

// throughSteps loops a backlog while the clock of the store steps forwards five times, and returns
// the departures. starts: at each step a dispatcher starts.
func throughSteps(t *testing.T, b shaper.Bucket, dispatchers, jobs int, starts bool) []time.Time {
	t.Helper()
	store := miniredis.NewMiniRedis()
	t.Cleanup(store.Close)
	clock := &offsetClock{store: store}
	clock.step(0)
	client := must.Get(rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { clock.run(ctx) })
	var mu sync.Mutex
	var departures []time.Time
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Depart() != nil {
			return shaper.Returned("late")
		}
		mu.Lock()
		departures = append(departures, time.Now())
		mu.Unlock()
		<-time.After(20 * time.Millisecond)
		return shaper.Done(200)
	})
	dispatch := func() {
		d := must.Get(New(Config{
			Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Concurrency: 4,
		}))(t)
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for range dispatchers {
		dispatch()
	}
	<-time.After(2 * time.Minute) // the burst is whole
	for i := range jobs {
		job := shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: []byte("{}")}
		if b.Flow != nil {
			job.Flow = "f"
		}
		must.Get(client.Enqueue(t.Context(), job))(t)
	}
	for _, by := range []time.Duration{time.Hour, 30 * time.Second, time.Hour, 10 * time.Second, 24 * time.Hour} {
		<-time.After(4 * time.Second)
		clock.step(by)
		if starts {
			dispatch()
		}
	}
	<-time.After(20 * time.Second)
	stop()
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	return departures
}
