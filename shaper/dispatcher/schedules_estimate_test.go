package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// The job of a schedule reserves what is estimated when it fires, in a bucket whose budgets are configured or set by an operator. Others are
// not estimated.
func TestScheduledJobsAreEstimated(t *testing.T) {
	t.Parallel()
	var buckets []shaper.Bucket
	for _, name := range []string{"configured", "set", "none"} {
		b := rig.Bucket(name, 1)
		b.Schedules = []shaper.Schedule{{Name: name, Cron: "* * * * *", Job: shaper.ScheduledJob{Payload: []byte("of " + name)}}}
		buckets = append(buckets, b)
	}
	buckets[0].Budgets = shaper.Budgets{rig.Rate("9000 tokens/m")}
	mini := redistest.Miniredis(t)
	now := time.Date(2026, time.January, 1, 0, 0, 30, 0, time.UTC)
	mini.SetTime(now)
	conn := redistest.ClientOf(t, mini)
	asked := map[string]int64{}
	estimate := func(bucket string, job *shaper.Job) shaper.Units {
		must.Equal(t, string(job.Payload), "of "+bucket, "asked of %q in bucket %q", job.Payload, bucket)
		asked[bucket]++
		return shaper.Units{shaper.UnitInput: 7, shaper.UnitOutput: asked[bucket]}
	}
	d := must.Get(New(Config{Redis: conn, Buckets: buckets, Workers: rig.Workers(buckets, shaper.WorkerFunc(nil)), Estimate: estimate}))(t)
	must.OK(t, d.store.JoinPools(t.Context()))
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: buckets}))(t)
	must.Get(op.As("anna").Bucket("set").Set(t.Context(), rig.MustPatch(t, "budgets", "500 tokens/m")))(t)
	d.store.Watch(t.Context())
	f := &firers{t: t}
	for _, b := range d.store.All() {
		f.all, f.own = append(f.all, d), append(f.own, newBucketLoop(d, b, t.Context()).schedules)
	}
	for range 3 { // the first look learns when to fire
		for n := range f.own {
			f.fireDue(n)
		}
		now = now.Add(time.Minute)
		mini.SetTime(now)
	}
	for n, name := range []string{"configured", "set", "none"} {
		bodies := conn.HGetAll(t.Context(), f.own[n].Keys.Body()).Val()
		must.Equal(t, len(bodies), 2, "bucket %q has jobs", name)
		for fire := range 2 {
			id := shaper.ScheduleJobID(name, time.Date(2026, time.January, 1, 0, 1+fire, 0, 0, time.UTC))
			reserves := fmt.Sprintf("=$input:7,output:%d ", fire+1)
			if strings.Contains(bodies[id], "$") != (name != "none") || name != "none" && !strings.Contains(bodies[id], reserves) {
				t.Errorf("job %s: %q, want %q", id, bodies[id], reserves)
			}
		}
	}
	must.Equal(t, asked["none"], 0, "asked in a bucket without budgets")
}
