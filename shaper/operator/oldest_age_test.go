package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// An alert on the age of jobs sees those of flows. A bucket of which no dispatcher has looked for the oldest job has no sample: 0 would say
// that none waits long.
func TestOldestAgeOfFlows(t *testing.T) {
	t.Parallel()
	w := rig.NewPoolWorld(t, rig.Grouped("groups", 1), rig.Flowing("flows", shaper.FlowKeyJob), rig.Flowing("empty", shaper.FlowKeyJob))
	for i := range 3 {
		id := fmt.Sprint("j", i)
		w.Enqueue("groups", 1, func(job *shaper.Job) { job.ID, job.Group, job.Flow = id, id, "f" })
		w.Enqueue("flows", 1, func(job *shaper.Job) { job.ID, job.Flow = id, id })
	}
	scrape := func() map[string]float64 {
		return rig.Scrape(t, rig.RegistryOf(operator.NewCollector(t.Context(), w.Client.Op)), "tundish_bucket_oldest_job_age_seconds")
	}
	got := scrape()
	if age, ok := got["tundish_bucket_oldest_job_age_seconds{bucket=empty}"]; len(got) != 1 || !ok || age != 0 {
		t.Errorf("before any audit: %v", got)
	}
	redis, now := w.Server.Client(), time.Now()
	keep := func(bucket, id string, came, seenAt time.Duration) {
		redis.HSet(t.Context(), store.BucketKeys(bucket).Count(), "oldest", fmt.Sprintf("%d %d %s", now.Add(came).UnixMicro(), now.Add(seenAt).UnixMicro(), id))
	}
	keep("groups", "j1", -time.Hour, -time.Minute)        // it waits: its age grows
	keep("flows", "left", -time.Hour, -50*time.Minute)    // it has left: the next one is taken to be as old
	keep("empty", "left", -time.Hour, -59*time.Minute+45) // nothing waits any more
	got = scrape()
	for bucket, want := range map[string]float64{"groups": 3600, "flows": 600, "empty": 0} {
		if age, ok := got["tundish_bucket_oldest_job_age_seconds{bucket="+bucket+"}"]; !ok || age < want || age > want*1.5 {
			t.Errorf("bucket %q: the oldest is %v s old (%t), want %v", bucket, age, ok, want)
		}
	}
}
