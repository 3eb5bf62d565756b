package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// crowd is a bucket with 30 flows that have 20 waiting jobs each, of which 5 are for later, and 3 jobs in flight.
func crowd(t *testing.T, b shaper.Bucket) *operator.Operator {
	t.Helper()
	client := redistest.Start(t).Client()
	c := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: client, Buckets: []shaper.Bucket{b}}))(t)
	t.Cleanup(c.Close)
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client, Buckets: []shaper.Bucket{b}}))(t)
	var jobs []shaper.Job
	for i := range 600 {
		job := shaper.Job{
			Bucket: b.Name, ID: fmt.Sprintf("j%03d", i), Flow: fmt.Sprintf("f%02d", i%30), Group: fmt.Sprint("g", i%3), Payload: []byte("1"),
			Priority: shaper.Priorities()[i/30%4],
		}
		if i/30%4 == 0 {
			job.Delay = time.Hour
		}
		jobs = append(jobs, job)
	}
	receipts, err := c.Enqueue(t.Context(), jobs...)
	if err != nil || slices.ContainsFunc(receipts, func(r shaper.Receipt) bool { return r.Refusal != nil }) {
		t.Fatal(receipts[0], err)
	}
	k := store.BucketKeys(b.Name)
	pipe := client.Pipeline()
	for i := range 3 {
		id := fmt.Sprint("leased", i)
		pipe.HSet(t.Context(), k.Body(), id, "1 1 00000000000cn001 {\"f\":\"f07\",\"g\":\"g1\"}\n1")
		pipe.HSet(t.Context(), k.Meta(), id, "3 1 0 0 0 c ")
		pipe.ZAdd(t.Context(), k.Leases(), redis.Z{Member: id, Score: float64(time.Now().Add(time.Hour).UnixMicro())})
	}
	must.Get(pipe.Exec(t.Context()))(t)
	return op
}

// Every job is found once, however small the pages are, and only what the filter means.
func TestFindJobs(t *testing.T) {
	t.Parallel()
	wanted := map[string]int{"": 603, "queued": 450, "scheduled": 150, "retrying": 0, "in_flight": 3, "flow": 23, "flow later": 5, "new": 600, "waiting": 600, "later": 150, "old": 3}
	flow := "f07"
	filters := map[string]operator.JobFilter{
		"": {}, "queued": {State: shaper.StateQueued}, "scheduled": {State: shaper.StateScheduled}, "retrying": {State: shaper.StateRetrying},
		"in_flight": {State: shaper.StateInFlight}, "flow": {Flow: &flow}, "flow later": {Flow: &flow, State: shaper.StateScheduled},
		"waiting": {State: operator.AnyWaiting}, "later": {State: operator.AnyLater}, "old": {Until: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
		"new": {Since: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	plain, flows, groups := rig.Bucket("b", 100), rig.Flowing("b", shaper.FlowKeyJob), rig.Grouped("b", 100)
	for name, b := range map[string]shaper.Bucket{"plain": plain, "flows": flows, "groups": groups} {
		b.Shed = shaper.NoShedding
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := crowd(t, b)
			for name, want := range wanted {
				for _, limit := range []int{3, 100, 1000} {
					found := map[string]bool{}
					for cursor := ""; ; {
						page, err := op.Bucket("b").Find(t.Context(), filters[name], cursor, limit)
						if err != nil || len(page.Jobs) > limit {
							t.Fatalf("%q: %d jobs, %v", name, len(page.Jobs), err)
						}
						for i := range page.Jobs {
							job := &page.Jobs[i]
							if found[job.ID] {
								t.Fatalf("%q, %d at a time: %s comes twice", name, limit, job.ID)
							}
							if found[job.ID] = true; job.State == shaper.StateScheduled != !job.Due.IsZero() || job.State == shaper.StateInFlight != strings.HasPrefix(job.ID, "leased") {
								t.Errorf("%+v", job)
							}
						}
						if cursor = page.Next; cursor == "" {
							break
						}
					}
					must.Equal(t, len(found), want, "%q, %d at a time: jobs", name, limit)
				}
			}
			group := "g1"
			if page, err := op.Bucket("b").Find(t.Context(), operator.JobFilter{Group: &group, Flow: &flow}, "", 100); err != nil || len(page.Jobs) != 23 {
				t.Errorf("of the flow in its group: %d, %v", len(page.Jobs), err)
			}
			for _, cursor := range []string{"x", "e30x"} {
				if _, err := op.Bucket("b").Find(t.Context(), operator.JobFilter{}, cursor, 1); !isInvalid(err) {
					t.Errorf("cursor %q: %v", cursor, err)
				}
			}
			for _, state := range []shaper.State{shaper.StateDead, "x"} {
				if _, err := op.Bucket("b").Find(t.Context(), operator.JobFilter{State: state}, "", 1); !isInvalid(err) {
					t.Errorf("state %q: %v", state, err)
				}
			}
		})
	}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*operator.InvalidChangeError](err)
	return ok
}
