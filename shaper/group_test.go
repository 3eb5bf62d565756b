package shaper

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
)

// grouped is a bucket whose flows are in groups, both named by the job.
func grouped(name string, rate int64) Bucket {
	b := testBucket(name, rate)
	flow, group := DefaultFlowSettings(), DefaultGroupSettings()
	flow.Key, group.Key = FlowKeyJob, FlowKeyJob
	b.Flow, b.Group = &flow, &group
	return b
}

func TestGroupSettingsAreChecked(t *testing.T) {
	t.Parallel()
	valid := grouped("b", 1)
	valid.Group.Key, valid.Group.Rate, valid.Group.Burst, valid.Group.Quotas = "header:X-Tenant", rate("5/s"), 3, []admission.Rate{rate("100/h")}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(b *Bucket){
		"group.key: is missing: say what names the group of a job": func(b *Bucket) { b.Group.Key = "" },
		"group.key: \"tenant\": want job, host":                    func(b *Bucket) { b.Group.Key = "tenant" },
		"group.rate: ":                                             func(b *Bucket) { b.Group.Rate = admission.Rate{Count: -1} },
		"group.burst: 0: want 1 to":                                func(b *Bucket) { b.Group.Burst = 0 },
		"group.capacity: -1: want 0 to":                            func(b *Bucket) { b.Group.Capacity = -1 },
		"group.max_in_flight: -1: want 0 to":                       func(b *Bucket) { b.Group.MaxInFlight = -1 },
		"group.quotas: 5 windows":                                  func(b *Bucket) { b.Group.Quotas = make([]admission.Rate, MaxQuotas+1) },
		"group: is given without flows":                            func(b *Bucket) { b.Flow = nil },
		"flow.max_flows: 0: want 1 to":                             func(b *Bucket) { b.Flow.MaxFlows = 0 },
		"flow.key: is missing: say what names the flow of a job":   func(b *Bucket) { b.Flow.Key = "" },
	} {
		b := grouped("b", 1)
		change(&b)
		if err := b.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestNameOfAGroup(t *testing.T) {
	t.Parallel()
	job := &Job{Flow: "f", Group: "acme", URL: "https://Example.com/", Identity: admission.Identity{Caller: "key:b", Headers: map[string]string{"X-Tenant": "t"}}}
	for key, want := range map[string]string{FlowKeyJob: "acme", FlowKeyHost: "example.com", FlowKeyCaller: "key:b", "header:x-tenant": "t"} {
		if got, err := (&GroupSettings{Key: key}).NameOf(job); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
		if key == FlowKeyHost {
			continue
		}
		if _, err := (&GroupSettings{Key: key}).NameOf(&Job{Flow: "f"}); err == nil || !strings.HasPrefix(err.Error(), "group: is ") {
			t.Errorf("%s of a job that says nothing: %v", key, err)
		}
	}
	var none *GroupSettings
	if got, err := none.NameOf(job); got != "acme" || err != nil {
		t.Errorf("without groups: %q, %v", got, err)
	}
	if err := (&Job{Group: strings.Repeat("x", MaxFlowBytes+1), Payload: []byte("x")}).Validate(100); err == nil || !strings.HasPrefix(err.Error(), "group: ") {
		t.Errorf("a long name: %v", err)
	}
}

func TestFlowPaths(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	names := []string{"", "a", "1:", "1:a", ":", "ab", "ü", strings.Repeat("x", 256)}
	for _, group := range names {
		for _, flow := range names {
			path := flowPath(group, flow)
			if g, f, ok := splitPath(path); g != group || f != flow || !ok || seen[path] {
				t.Errorf("%q of %q is %q, which is %q of %q (%t); seen %t", flow, group, path, f, g, ok, seen[path])
			}
			seen[path] = true
		}
	}
	for _, path := range []string{"", "a", "2:a", "-1:a", ":a", "x:a"} {
		if _, _, ok := splitPath(path); ok {
			t.Errorf("%q was taken for a path", path)
		}
	}
}

// The group is in the receipt and with the job, it has a bound of its own, and flows of two groups are apart.
func TestEnqueueIntoGroups(t *testing.T) {
	t.Parallel()
	b := grouped("b", 10)
	b.Group.Capacity, b.Group.Key = 2, "header:X-Tenant"
	b.Limits = []admission.Limit{{Name: "l", Per: []string{admission.PerFlow}, Limit: rate("2/744h")}}
	c := clients(t, 1, b)[0]
	if got := fmt.Sprint(c.LimitHeaders("b")); got != "[X-Tenant]" {
		t.Errorf("headers %s", got)
	}
	of := func(group, flow string) Job {
		return Job{Bucket: "b", Flow: flow, Payload: []byte("x"), Identity: admission.Identity{Headers: map[string]string{"X-Tenant": group}}}
	}
	receipts, err := c.Enqueue(t.Context(), of("a", "x"), of("b", "x"), of("a", "y"), of("a", "z"), of("b", "x"), of("c", "x"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range receipts {
		text := fmt.Sprintf("%s/%s@%d", r.Group, r.Flow, r.Position)
		if r.Refusal != nil {
			text = fmt.Sprintf("%s %s: %s", text, r.Refusal.Reason, r.Refusal.Detail)
			if r.Refusal.RetryAfter <= 0 || r.Refusal.RetryAfter > time.Second {
				t.Errorf("retry after %s", r.Refusal.RetryAfter)
			}
		}
		got = append(got, text)
	}
	want := `a/x@0, b/x@0, a/y@0, a/z@0 group-full: group "a" of bucket "b" is full (2/2): retry in 1s or raise group.capacity, b/x@1, c/x@0`
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s", s)
	}
	again, err := c.Enqueue(t.Context(), of("c", "x"), of("c", "x"))
	if err != nil || again[0].Refusal != nil || again[1].Refusal == nil || again[1].Refusal.Reason != ReasonLimit {
		t.Errorf("a limit by flow counts those of each group: %+v, %v", again, err)
	}
	job, err := c.Job(t.Context(), "b", receipts[4].ID)
	if err != nil || job.Group != "b" || job.Flow != "x" || job.OfGroup == nil || job.OfFlow == nil || job.Position != 1 {
		t.Errorf("job %+v, %v", job, err)
	}
	if state, err := c.Cancel(t.Context(), "b", receipts[4].ID); err != nil || state != StateCancelled {
		t.Errorf("cancelled: %v, %v", state, err)
	}
	if infos, err := c.op.BucketInfos(t.Context(), "b"); err != nil || !infos[0].HasGroups || infos[0].Groups != 3 || infos[0].GroupsWait != 3 || infos[0].Flows != 4 {
		t.Errorf("bucket %+v, %v", infos, err)
	}
}

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
		w.dispatch(worker, nil)
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

// awaitEmpty waits until all outcomes are written, and nothing is kept of any flow or group.
func (w *world) awaitEmpty() {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for k := bucketKeys("b"); ; {
		infos, err := w.client.op.BucketInfos(w.t.Context(), "b")
		if err != nil {
			w.t.Fatal(err)
		}
		left := w.server.Client().Exists(w.t.Context(), k.flows(), k.groups(), k.dueGroups(), k.dueOfGroup("big")).Val()
		if infos[0].Unfinished == 0 && left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("left: %+v, %d keys", infos[0], left)
		}
	}
}

// A patrol sees by the calendar of groups whether there is something to send; a sweep takes back what ran out
// in any group, and mends both calendars.
func TestPatrolOfGroups(t *testing.T) {
	t.Parallel()
	s := newGrouped(t)
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

// Processes have to agree whether there are groups, and a bucket that holds jobs keeps to it.
func TestGroupsMustBeTheSameForAll(t *testing.T) {
	t.Parallel()
	s := newGrouped(t)
	s.submitTo("a", "x", "j")
	other := flowing("b", FlowKeyJob)
	other.Revision = 1
	c, err := newActors(ClientConfig{Redis: s.redis, Buckets: []Bucket{other}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Enqueue(t.Context(), Job{Bucket: "b", Flow: "x", Payload: []byte("x")})
	if err == nil || !strings.Contains(err.Error(), "holds 1 jobs that were queued with flows in groups, and is configured with flows: drain or purge it first") {
		t.Errorf("enqueued: %v", err)
	}
	if err := s.client.Reconfigure([]Bucket{other}); err == nil || !strings.Contains(err.Error(), "groups") {
		t.Errorf("a reload that takes the groups away: %v", err)
	}
	if err := c.op.Control("anna").PauseFlow(t.Context(), "b", "x", ""); err == nil {
		t.Error("a flow was paused as one of no group")
	}
	// What Redis knows of a bucket that is not configured here.
	empty, err := newActors(ClientConfig{Redis: s.redis})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := empty.op.Control("anna").Group(t.Context(), "b", "a"); err != nil || info.Waiting != 1 {
		t.Errorf("group %+v, %v", info, err)
	}
	if err := empty.op.Control("anna").InGroup("a").PauseFlow(t.Context(), "b", "x", ""); err != nil {
		t.Error(err)
	}
}
