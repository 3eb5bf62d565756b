package shaper

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Two dispatchers send as much of each group and flow at a time as they may; all arrives once, and nothing is
// left.
func TestGroupsAreDelivered(t *testing.T) {
	t.Parallel()
	b := grouped("b", 1000)
	b.Group.MaxInFlight, b.Flow.MaxInFlight = 5, 2
	w := newWorld(t, b)
	var jobs []Job
	for i := range 60 {
		jobs = append(jobs, Job{Bucket: "b", ID: fmt.Sprint("big", i), Group: "big", Flow: fmt.Sprint("f", i%20), Payload: []byte("x")})
	}
	for i := range 30 {
		jobs = append(jobs, Job{Bucket: "b", ID: fmt.Sprint("small", i), Group: "small", Flow: "f", Payload: []byte("x")},
			Job{Bucket: "b", ID: fmt.Sprint("other", i), Group: "other", Flow: fmt.Sprint("f", i%2), Payload: []byte("x")})
	}
	receipts, err := w.client.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		if r.Refusal != nil {
			t.Fatalf("%+v", r)
		}
	}
	var mu sync.Mutex
	seen, flying, most := map[string]int{}, map[string]int{}, map[string]int{}
	count := func(a *Attempt, by int) {
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
	worker := WorkerFunc(func(_ context.Context, a *Attempt) Outcome {
		count(a, 1)
		began <- struct{}{}
		<-gate
		count(a, -1)
		ended <- struct{}{}
		return Done(200)
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
		if n != 1 {
			t.Errorf("%s arrived %d times", id, n)
		}
	}
	for name, bound := range map[string]int{"big": 5, "small": 2, "other": 4, "small/f": 2, "other/f0": 2, "other/f1": 2} {
		if most[name] != bound {
			t.Errorf("%d of %s were in flight at a time, want %d", most[name], name, bound)
		}
	}
	for i := range 20 {
		if name := fmt.Sprint("big/f", i); most[name] > 2 {
			t.Errorf("%d of %s were in flight", most[name], name)
		}
	}
	w.awaitEmpty()
}

// A patrol sees by the calendar of groups whether there is something to send; a sweep takes back what ran out
// in any group, and mends both calendars.
func TestPatrolOfGroups(t *testing.T) {
	t.Parallel()
	s := steppedOn(t, newGrouped(t), newWaiting())
	r, ctx, k := s.drain(), t.Context(), bucketKeys("b").as(levelsGroups)
	r.setSleeping(true)
	waiting := func() bool {
		t.Helper()
		sights := s.d.look(ctx, []*drain{r})
		if sights[0].err != nil {
			t.Fatal(sights[0].err)
		}
		return sights[0].waiting
	}
	at := time.Now()
	r.clock.observe(at, at, s.now.UnixMicro())
	s.submitTo("a", "x", "ax")
	s.submitTo("b", "x", "bx")
	s.submitTo("b", "y", "by")
	if !waiting() {
		t.Error("nothing waits")
	}
	s.redis.Del(ctx, k.dueGroups(), k.dueOfGroup("b"))
	if waiting() {
		t.Error("something waits, and is not on the calendar")
	}
	// What a job in flight has held of its group is free when its lease ran out.
	if err := s.redis.HSet(ctx, k.meta(), "ax", "3 1 0 0 0 c ").Err(); err != nil {
		t.Fatal(err)
	}
	s.redis.LRem(ctx, k.queue(flowPath("a", "x")), 0, "ax")
	s.redis.ZAdd(ctx, k.leases(), redis.Z{Member: "ax", Score: float64(s.now.UnixMicro())})
	s.redis.HSet(ctx, k.flows(), flowPath("a", "x"), "0 0 - 0 1 0 1 .khnld")
	s.redis.HSet(ctx, k.groups(), "a", "0 0 - 0 1 0 1 .khnld")
	s.step(time.Millisecond)
	var w sweepWatch
	for range 4 {
		if err := r.sweep(ctx, &w, s.now.UnixMicro(), true); err != nil {
			t.Fatal(err)
		}
	}
	s.wantState(StateQueued, "ax", "bx", "by")
	for _, flow := range []string{flowPath("a", "x"), flowPath("b", "x"), flowPath("b", "y")} {
		if err := s.redis.ZScore(ctx, k.dueOf(flow), flow).Err(); err != nil {
			t.Errorf("flow %q is not on its calendar: %v", flow, err)
		}
	}
	if groups := s.redis.ZCard(ctx, k.dueGroups()).Val(); groups != 2 || !waiting() {
		t.Errorf("%d groups are on the calendar", groups)
	}
	if got := s.redis.HGet(ctx, k.groups(), "a").Val(); got != "0 0 - 0 1 0 0 .khnld" {
		t.Errorf("group a is %q", got)
	}
	if w.auditing || w.missing != 0 {
		t.Errorf("the audit came to %+v", w)
	}
}
