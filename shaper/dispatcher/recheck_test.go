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
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

func hundredPerSecond(t *testing.T) operator.FlowPatch {
	t.Helper()
	var patch operator.FlowPatch
	must.OK(t, patch.Put(shaper.FlowRate, "100/s"))
	return patch
}

// A rate that is raised, a burst, and a quota that is lifted hold within a second for those that wait by the
// settings of before, whoever changes them: a configuration that is read again, or an operator.
func TestRaisedRateHoldsWithinASecond(t *testing.T) {
	t.Parallel()
	n := 30
	if redistest.Soak {
		n = 150
	}
	slow, fast := rig.RateOf(1, 40*time.Second), rig.RateOf(100, time.Second)
	flows := func(b *shaper.Bucket, rate admission.Rate, quotas ...admission.Rate) {
		f := shaper.DefaultFlowSettings()
		f.Key, f.Rate, f.Quotas = shaper.FlowKeyJob, rate, quotas
		b.Flow = &f
	}
	groups := func(b *shaper.Bucket, rate admission.Rate, quotas ...admission.Rate) {
		flows(b, admission.Rate{})
		g := shaper.DefaultGroupSettings()
		g.Key, g.Rate, g.Quotas = shaper.FlowKeyJob, rate, quotas
		b.Group = &g
	}
	reload := func(change func(b *shaper.Bucket)) func(*testing.T, *Dispatcher, *operator.Operator, shaper.Bucket) {
		return func(t *testing.T, d *Dispatcher, _ *operator.Operator, b shaper.Bucket) {
			change(&b)
			if err := d.Reconfigure([]shaper.Bucket{b}, d.workers, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		flows  int
		before func(b *shaper.Bucket)
		change func(*testing.T, *Dispatcher, *operator.Operator, shaper.Bucket)
	}{
		"bucket": {0, func(b *shaper.Bucket) { b.Rate, b.Burst = slow, 1 }, reload(func(b *shaper.Bucket) { b.Rate = fast })},
		"bucket's quota": {0, func(b *shaper.Bucket) { b.Quotas = []admission.Rate{rig.RateOf(1, time.Minute)} },
			reload(func(b *shaper.Bucket) { b.Quotas = nil })},
		"pool": {0, func(b *shaper.Bucket) { b.Pool = &shaper.Pool{Name: "p", Rate: slow, Burst: 1} },
			reload(func(b *shaper.Bucket) { b.Pool = &shaper.Pool{Name: "p", Rate: fast, Burst: 1} })},
		"flows":         {n, func(b *shaper.Bucket) { flows(b, slow) }, reload(func(b *shaper.Bucket) { flows(b, fast) })},
		"flows' burst":  {n, func(b *shaper.Bucket) { flows(b, slow) }, reload(func(b *shaper.Bucket) { flows(b, rig.RateOf(1, time.Second/2)); b.Flow.Burst = 9 })},
		"flows' quotas": {n, func(b *shaper.Bucket) { flows(b, admission.Rate{}, rig.RateOf(1, time.Hour)) }, reload(func(b *shaper.Bucket) { flows(b, admission.Rate{}) })},
		"groups":        {n, func(b *shaper.Bucket) { groups(b, slow) }, reload(func(b *shaper.Bucket) { groups(b, fast) })},
		"flows of groups": {n, func(b *shaper.Bucket) { groups(b, admission.Rate{}); b.Flow.Rate = slow },
			reload(func(b *shaper.Bucket) { groups(b, admission.Rate{}); b.Flow.Rate = fast })},
		"one flow": {1, func(b *shaper.Bucket) { flows(b, slow) }, func(t *testing.T, _ *Dispatcher, c *operator.Operator, _ shaper.Bucket) {
			if _, err := c.Bucket("b").Flow("f0").Set(t.Context(), hundredPerSecond(t)); err != nil {
				t.Error(err)
			}
		}},
		"one group": {1, func(b *shaper.Bucket) { groups(b, slow) }, func(t *testing.T, _ *Dispatcher, c *operator.Operator, _ shaper.Bucket) {
			if _, err := c.Bucket("b").Group("f0").Set(t.Context(), hundredPerSecond(t)); err != nil {
				t.Error(err)
			}
		}},
		"one flow of a group": {1, func(b *shaper.Bucket) { groups(b, admission.Rate{}); b.Flow.Rate = slow }, func(t *testing.T, _ *Dispatcher, c *operator.Operator, _ shaper.Bucket) {
			if _, err := c.Bucket("b").Group("f0").Flow("x").Set(t.Context(), hundredPerSecond(t)); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := rig.Bucket("b", 1000)
				b.Burst = 100
				c.before(&b)
				store := miniredis.NewMiniRedis()
				store.ClockTTL(true)
				t.Cleanup(store.Close)
				client := must.Get(rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}}))(t)
				var mu sync.Mutex
				departed := map[string]int{} // by flow
				worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
					if a.Depart() != nil {
						return shaper.Returned("late")
					}
					mu.Lock()
					defer mu.Unlock()
					departed[a.Group+"/"+a.Flow]++
					return shaper.Done(200)
				})
				d := must.Get(New(Config{
					Redis: rig.BubbleClient(t, store.Dial), Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker),
				}))(t)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					if err := d.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				<-time.After(2 * time.Minute)
				for i := range max(c.flows, 1) {
					for range 10 {
						job := shaper.Job{Bucket: "b", Payload: []byte("{}")}
						if b.Flow != nil {
							job.Flow = fmt.Sprint("f", i)
						}
						if b.Group != nil {
							job.Group, job.Flow = job.Flow, "x"
						}
						must.Get(client.Enqueue(t.Context(), job))(t)
					}
				}
				<-time.After(5 * time.Second)
				least := func() (flows, least int) {
					mu.Lock()
					defer mu.Unlock()
					for _, n := range departed {
						if least == 0 || n < least {
							least = n
						}
					}
					return len(departed), least
				}
				flows, before := least()
				c.change(t, d, client.Op.As("anna"), b)
				<-time.After(1500 * time.Millisecond)
				_, after := least()
				t.Logf("%d flows: each sent %d jobs before the change, %d until 1.5 s after it", flows, before, after)
				if flows != max(c.flows, 1) || before != 1 {
					t.Fatal("the settings of before do not hold")
				}
				if after < 2 {
					t.Error("the new ones do not hold within a second")
				}
				stop()
				running.Wait()
			})
		})
	}
}
