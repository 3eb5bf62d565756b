package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Two dispatchers send as much of each group and flow at a time as they may; all arrives once, and nothing is
// left.
func TestGroupsAreDelivered(t *testing.T) {
	t.Parallel()
	b := rig.Grouped("b", 1000)
	b.Group.MaxInFlight, b.Flow.MaxInFlight = 5, 2
	w := rig.NewWorld(t, b)
	var jobs []shaper.Job
	for i := range 60 {
		jobs = append(jobs, shaper.Job{Bucket: "b", ID: fmt.Sprint("big", i), Group: "big", Flow: fmt.Sprint("f", i%20), Payload: []byte("x")})
	}
	for i := range 30 {
		jobs = append(jobs, shaper.Job{Bucket: "b", ID: fmt.Sprint("small", i), Group: "small", Flow: "f", Payload: []byte("x")},
			shaper.Job{Bucket: "b", ID: fmt.Sprint("other", i), Group: "other", Flow: fmt.Sprint("f", i%2), Payload: []byte("x")})
	}
	receipts := must.Get(w.Client.Enqueue(t.Context(), jobs...))(t)
	for _, r := range receipts {
		if r.Refusal != nil {
			t.Fatalf("%+v", r)
		}
	}
	var mu sync.Mutex
	seen, flying, most := map[string]int{}, map[string]int{}, map[string]int{}
	count := func(a *shaper.Attempt, by int) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{a.Group, a.Group + "/" + a.Flow} {
			flying[name] += by
			most[name] = max(most[name], flying[name])
		}
		if by > 0 {
			seen[a.ID]++
		}
	}
	began, gate, ended := make(chan struct{}, len(jobs)), make(chan struct{}), make(chan struct{}, len(jobs))
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		count(a, 1)
		began <- struct{}{}
		<-gate
		count(a, -1)
		ended <- struct{}{}
		return shaper.Done(200)
	})
	for range 2 {
		dispatch(w, worker, nil)
	}
	for range 5 + 2 + 4 { // of big, small with its one flow, and other with two
		<-began
	}
	close(gate)
	for range jobs {
		<-ended
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != len(jobs) {
		t.Errorf("%d jobs arrived; %d were sent", len(seen), len(jobs))
	}
	for id, n := range seen {
		must.Equal(t, n, 1, "%s arrived times", id)
	}
	for name, bound := range map[string]int{"big": 5, "small": 2, "other": 4, "small/f": 2, "other/f0": 2, "other/f1": 2} {
		must.Equal(t, most[name], bound, "of %s were in flight at a time", name)
	}
	for i := range 20 {
		if name := fmt.Sprint("big/f", i); most[name] > 2 {
			t.Errorf("%d of %s were in flight", most[name], name)
		}
	}
	w.AwaitEmpty()
}

// A patrol sees by the turn queue of groups whether there is something to send; a sweep takes back what ran out
// in any group, and mends both turn queues.
func TestPatrolOfGroups(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, rig.NewGrouped(t), rig.NewWaiting())
	r, ctx, k := s.bucketLoop(), t.Context(), store.BucketKeys("b").As(codec.LevelsGroups)
	r.claims.sleeping.Store(true)
	waiting := func() bool {
		t.Helper()
		sights := s.d.checkBuckets(ctx, []*bucketPatrol{r.patrol})
		if sights[0].err != nil {
			t.Fatal(sights[0].err)
		}
		return sights[0].waiting
	}
	at := time.Now()
	r.clock.observe(at, at, s.Now.UnixMicro())
	s.SubmitTo("a", "x", "ax")
	s.SubmitTo("b", "x", "bx")
	s.SubmitTo("b", "y", "by")
	if !waiting() {
		t.Error("nothing waits")
	}
	s.Redis.Del(ctx, k.DueGroups(), k.DueOfGroup("b"))
	if waiting() {
		t.Error("something waits, and is not in the turn queue")
	}
	// What a job in flight has held of its group is free when its lease ran out.
	must.OK(t, s.Redis.HSet(ctx, k.Meta(), "ax", "3 1 0 0 0 c ").Err())
	s.Redis.LRem(ctx, k.Queue(codec.FlowPath("a", "x")), 0, "ax")
	s.Redis.ZAdd(ctx, k.Leases(), redis.Z{Member: "ax", Score: float64(s.Now.UnixMicro())})
	s.Redis.HSet(ctx, k.Flows(), codec.FlowPath("a", "x"), stored.Flow{Unfinished: 1, InFlight: 1}.String())
	s.Redis.HSet(ctx, k.Groups(), "a", stored.Flow{Unfinished: 1, InFlight: 1}.String())
	s.Step(time.Millisecond)
	w := patrolOf(r)
	for range 4 {
		must.OK(t, w.sweep(ctx, s.Now.UnixMicro(), true))
	}
	s.WantState(shaper.StateQueued, "ax", "bx", "by")
	for _, flow := range []string{codec.FlowPath("a", "x"), codec.FlowPath("b", "x"), codec.FlowPath("b", "y")} {
		if err := s.Redis.ZScore(ctx, k.DueOf(flow), flow).Err(); err != nil {
			t.Errorf("flow %q is not on its calendar: %v", flow, err)
		}
	}
	if groups := s.Redis.ZCard(ctx, k.DueGroups()).Val(); groups != 2 || !waiting() {
		t.Errorf("%d groups are in the turn queue", groups)
	}
	must.Equal(t, s.Redis.HGet(ctx, k.Groups(), "a").Val(), stored.Flow{Unfinished: 1}.String(), "group a is")
	if w.auditing || w.missing != 0 {
		t.Errorf("the audit came to %+v", w)
	}
}
