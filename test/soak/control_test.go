//go:build soak

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

// obeyed is how long all processes may take to obey an operator.
const obeyed = time.Second

// purge purges the bucket and returns how many jobs it says it dropped, -1 if it
// failed.
func (s *system) purge() int {
	out, err := exec.CommandContext(s.T.Context(), filepath.Join(harness.Programs, "dispatcher"), "bucket", "purge", harness.BucketName,
		"--yes", "--json", "--config", s.Config).Output()
	var answer struct{ Purged int }
	if err = errors.Join(err, json.Unmarshal(out, &answer)); err != nil {
		s.T.Errorf("purge: %v: %s", err, out)
		return -1
	}
	return answer.Purged
}

// quietFor waits until so much time has passed since an instant.
func quietFor(t *testing.T, since time.Time, d time.Duration) {
	t.Helper()
	harness.Await(t, 2*d, "time passes", func() bool { return time.Since(since) >= d })
}

// TestPauseAndResume: with two dispatchers under load, a paused bucket stands
// still within a second, over a restart too, takes jobs in, and goes on at its
// rate without a burst.
func TestPauseAndResume(t *testing.T) {
	const rate, jobs = 200, 1000
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Respond: a.Respond})
		s.Post("early", jobs)
		harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return s.History.Check().Delivered >= 200 })
		s.Operate("pause", harness.BucketName, "--reason", "a test")
		paused := time.Now()
		s.Post("paused", 200)
		s.Dispatchers[0].Stop(t)
		s.Dispatchers[0] = s.Restart[0]()
		quietFor(t, paused, 3*obeyed)
		late := a.Latest("early").Sub(paused)
		if n := len(a.Of("paused")); n > 0 {
			t.Errorf("%d of the jobs that came during the pause left", n)
		}
		s.Operate("resume", harness.BucketName)
		resumed := time.Now()
		harness.Await(t, 5*time.Second, "deliveries go on", func() bool { return a.Latest("early").After(resumed) })
		r := s.AwaitDelivered(30 * time.Second)
		harness.Report(t, rate, r)
		first := slices.MinFunc(slices.DeleteFunc(a.Of("early"), func(at time.Time) bool { return at.Before(resumed) }), time.Time.Compare)
		t.Logf("the last one left %s after the pause, the first one came %s after the end of it", late.Round(time.Millisecond),
			first.Sub(resumed).Round(time.Millisecond))
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d came twice", r.Extra)
		case late > obeyed:
			return fmt.Sprintf("a job left %s after the pause", late)
		}
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
	})
}

// TestRateChanges: a rate that is set holds within a second in all dispatchers,
// also where they sleep until the slot of an hourly one, and over a restart with
// the configuration that says otherwise.
func TestRateChanges(t *testing.T) {
	const configured, rate, jobs = 200, 50, 150
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		var a harness.ArrivalLog
		s := start(t, redistest.Start(t), harness.Plan{Rate: configured, Dispatchers: 2, Respond: a.Respond})
		s.Post("warm", 20)
		s.AwaitDelivered(10 * time.Second)
		s.Operate("set", harness.BucketName, "--rate", "1/h")
		s.Post("saved", 1) // a quiet bucket sends one at once, at any rate: the next one leaves an hour later
		harness.Await(t, 10*time.Second, "the one that a quiet bucket sends", func() bool { return len(a.Of("saved")) == 1 })
		slow := time.Now()
		s.Post("slow", jobs)
		for i := range s.Dispatchers {
			s.Dispatchers[i].Stop(t)
			s.Dispatchers[i] = s.Restart[i]()
		}
		quietFor(t, slow, 2*obeyed)
		if n := len(a.Of("slow")); n > 0 {
			t.Errorf("%d left at 1/h", n)
		}
		fast := time.Now()
		s.Operate("set", harness.BucketName, "--rate", "50/s")
		changed := time.Now()
		r := s.AwaitDelivered(20 * time.Second)
		times := a.Of("slow")
		slices.SortFunc(times, time.Time.Compare)
		took, all := times[0].Sub(changed), times[len(times)-1].Sub(times[0])
		t.Logf("1/h to 50/s: the first one came %s after (the command took %s), %d in %s", took.Round(time.Millisecond),
			changed.Sub(fast).Round(time.Millisecond), len(times), all.Round(time.Millisecond))
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d came twice", r.Extra)
		case took > obeyed:
			return fmt.Sprintf("the first one came %s after the change", took)
		case all > jobs*time.Second/rate*12/10:
			return fmt.Sprintf("%d jobs at 50/s took %s", jobs, all)
		}
		return stall.Crowded(func(window time.Duration) int { return harness.MostOf(times, window) }, rate, harness.Spread, time.Second)
	})
}

// pacedBucket is one that holds as much as tests put in, and remembers nothing of
// it.
func pacedBucket(rate int) shaper.Bucket {
	b := shaper.DefaultBucket()
	b.Name, b.Capacity, b.MaxInFlight, b.DedupeWindow, b.Shed = harness.BucketName, 2_000_000, 100_000, 0, shaper.NoShedding
	b.Rate = admission.Rate{Count: int64(rate), Per: time.Second, Unit: admission.UnitRequests}
	return b
}

// fillBucket puts jobs in as fast as it can, named fill-0 and so on. Whether one
// arrives is open.
func fillBucket(t *testing.T, conn redis.UniversalClient, b shaper.Bucket, jobs int, history *checker.History) {
	t.Helper()
	client, err := producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	const batch, callers = 1000, 4
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for first := caller * batch; first < jobs; first += callers * batch {
				list := make([]shaper.Job, min(batch, jobs-first))
				for i := range list {
					list[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprintf("fill-%d", first+i), Payload: []byte(`{}`)}
					history.Unknown(list[i].ID)
				}
				receipts, err := client.Enqueue(t.Context(), list...)
				if err != nil || receipts[len(receipts)-1].Refusal != nil {
					t.Errorf("fill: %v, %+v", err, receipts[len(receipts)-1])
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
