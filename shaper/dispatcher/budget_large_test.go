package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// departures notes the ids of attempts in the order in which they leave.
type departures struct {
	mu    sync.Mutex
	ids   []string
	large chan struct{} // closed when the large job has left
}

func (d *departures) Deliver(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids = append(d.ids, a.ID)
	if a.ID == "large" {
		close(d.large)
	}
	return shaper.Done(200)
}

func (d *departures) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ids)
}

// before is how many left before a job.
func (d *departures) before(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Index(d.ids, id)
}

// Three dispatchers share a budget. A job that reserves four fifths of it leaves within one window of its turn, which means: what leaves
// after its turn and before it reserves no more than one budget. It is of one flow among a thousand, whose turn comes after a job of each other
// one; and of one bucket of a pool, whose turn comes at once.
func TestALargeJobOverDispatchers(t *testing.T) {
	t.Parallel()
	const flows, each, small, window = 1000, 8, 3, 2 * time.Second
	budget := rig.Rate(fmt.Sprintf("%d tokens/%s", flows*small, window)) // a job of each flow
	large := shaper.Units{shaper.UnitTokens: budget.Count * 8 / 10}
	for name, turn := range map[string]int64{"flows": flows * small, "pool": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rig.Flowing("b", shaper.FlowKeyJob)
			b.Rate, b.Capacity = rig.PerSecond(2000), 2*flows*each
			buckets := []shaper.Bucket{b}
			job := shaper.Job{Bucket: "b", Flow: "big", ID: "large", Payload: []byte("x"), Units: large}
			switch name {
			case "flows":
				buckets[0].Budgets = shaper.Budgets{budget}
			case "pool":
				other := rig.Bucket("other", 2000)
				pool := &shaper.Pool{Name: "vendor", Rate: rig.PerSecond(2000), Budgets: shaper.Budgets{budget}}
				buckets[0].Pool, other.Pool = pool, pool
				buckets = append(buckets, other)
				job.Bucket, job.Flow = "other", ""
			}
			w := rig.NewWorld(t, buckets[0])
			client := must.Get(rig.NewActors(producer.Config{Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: buckets}))(t)
			enqueue := func(jobs ...shaper.Job) {
				t.Helper()
				receipts, err := client.Enqueue(t.Context(), jobs...)
				if err != nil || slices.ContainsFunc(receipts, func(r shaper.Receipt) bool { return r.Refusal != nil }) {
					t.Fatalf("%+v, %v", receipts, err)
				}
			}
			for n := range each {
				for from := 0; from < flows; from += 250 {
					var jobs []shaper.Job
					for f := from; f < from+250; f++ {
						jobs = append(jobs, shaper.Job{
							Bucket: "b", Flow: fmt.Sprint("f", f), ID: fmt.Sprintf("f%d-%d", f, n), Payload: []byte("x"), Units: shaper.Units{shaper.UnitTokens: small},
						})
					}
					enqueue(jobs...)
				}
			}
			w.Proxy.SetDelay(50 * time.Millisecond)
			left := &departures{large: make(chan struct{})}
			for range 3 {
				dispatch(w, left, func(c *Config) { c.Buckets = buckets })
			}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for left.count() < flows { // the burst of the budget is over
				<-tick.C
			}
			enqueue(job)
			came := left.count()
			select {
			case <-left.large:
			case <-time.After(time.Minute):
				t.Fatalf("%d of %d small jobs have left, and the large one has not", left.count(), flows*each)
			}
			before := int64(left.before("large")-came) * small
			t.Logf("%d tokens left between the arrival of the large job and its departure", before)
			if most := turn + budget.Count; before > most {
				t.Errorf("%d tokens left before the large job, want at most %d until its turn and %d after it", before, turn, budget.Count)
			}
		})
	}
}
