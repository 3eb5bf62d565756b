package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Each word is told where it holds, the first of several, with the time until when.
func TestWhyWords(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_790_000_000, 0)
	later := now.Add(time.Minute)
	waits := func(change func(b *operator.BucketInfo)) *operator.BucketInfo {
		b := &operator.BucketInfo{Now: now}
		b.Unfinished, b.Waiting, b.MaxInFlight = 3, 3, 10
		change(b)
		return b
	}
	rate := admission.Rate{Count: 5, Per: time.Hour, Unit: admission.UnitRequests}
	held := &shaper.Downstream{HeldUntil: later, Breaker: shaper.BreakerClosed}
	for name, tt := range map[string]struct {
		info  *operator.BucketInfo
		code  operator.WhyCode
		until time.Time
	}{
		"sends":  {waits(func(*operator.BucketInfo) {}), operator.WhySends, time.Time{}},
		"empty":  {waits(func(b *operator.BucketInfo) { b.InFlight = 3 }), operator.WhyEmpty, time.Time{}},
		"paused": {waits(func(b *operator.BucketInfo) { b.Pause, b.Downstream = &shaper.Pause{By: "anna"}, held }), operator.WhyPaused, time.Time{}},
		"closed": {waits(func(b *operator.BucketInfo) { b.Hours = &shaper.Hours{Opens: later} }), operator.WhyClosed, later},
		"open":   {waits(func(b *operator.BucketInfo) { b.Hours = &shaper.Hours{Open: true} }), operator.WhySends, time.Time{}},
		"held":   {waits(func(b *operator.BucketInfo) { b.Downstream = held }), operator.WhyHeld, later},
		"was held": {waits(func(b *operator.BucketInfo) {
			b.Downstream = &shaper.Downstream{HeldUntil: now, Breaker: shaper.BreakerClosed}
		}), operator.WhySends, time.Time{}},
		"breaker": {waits(func(b *operator.BucketInfo) {
			b.Downstream = &shaper.Downstream{HeldUntil: later, Breaker: shaper.BreakerOpen}
		}), operator.WhyBreaker, later},
		"probe":     {waits(func(b *operator.BucketInfo) { b.Downstream = &shaper.Downstream{Breaker: shaper.BreakerHalfOpen} }), operator.WhyBreaker, time.Time{}},
		"quota":     {waits(func(b *operator.BucketInfo) { b.Quotas = []shaper.QuotaUse{{Quota: rate, Used: 5, Frees: later}} }), operator.WhyQuota, later},
		"budget":    {waits(func(b *operator.BucketInfo) { b.Budgets = []shaper.BudgetUse{{Budget: rate, Charged: 5, Frees: later}} }), operator.WhyBudget, later},
		"in flight": {waits(func(b *operator.BucketInfo) { b.Requests = 10 }), operator.WhyInFlight, time.Time{}},
		"pool held": {waits(func(b *operator.BucketInfo) { b.Pool = &operator.PoolInfo{Downstream: held} }), operator.WhyPool, later},
		"pool's quota": {waits(func(b *operator.BucketInfo) {
			b.Pool = &operator.PoolInfo{Quotas: []shaper.QuotaUse{{Quota: rate, Frees: later}}}
		}), operator.WhyPool, later},
		"pool in flight":   {waits(func(b *operator.BucketInfo) { b.Pool = &operator.PoolInfo{MaxInFlight: 2, InFlight: 2} }), operator.WhyPool, time.Time{}},
		"flows":            {waits(func(b *operator.BucketInfo) { b.HasFlows, b.FlowsDisabled = true, 1 }), operator.WhyFlows, time.Time{}},
		"a flow may send":  {waits(func(b *operator.BucketInfo) { b.HasFlows, b.FlowsDisabled, b.FlowsWait = true, 1, 1 }), operator.WhySends, time.Time{}},
		"groups":           {waits(func(b *operator.BucketInfo) { b.HasFlows, b.HasGroups = true, true }), operator.WhyFlows, time.Time{}},
		"a group may send": {waits(func(b *operator.BucketInfo) { b.HasFlows, b.HasGroups, b.GroupsWait = true, true, 1 }), operator.WhySends, time.Time{}},
		"later":            {waits(func(b *operator.BucketInfo) { b.Waiting, b.Later, b.NextDue = 0, 3, later }), operator.WhyLater, later},
	} {
		why := tt.info.Why(true, shaper.LatePermits{})
		if why.Code != tt.code || !why.Until.Equal(tt.until) || why.Sentence == "" {
			t.Errorf("%s: %+v", name, why)
		}
	}
	used := waits(func(b *operator.BucketInfo) {
		b.InFlight, b.Budgets = 3, []shaper.BudgetUse{{Budget: rate, Charged: 5, Frees: later}}
	}).Why(true, shaper.LatePermits{})
	if want := "nothing waits; the budget of 5/h makes the next job wait (free in its window: 0), until " + later.UTC().Format(time.RFC3339); used.Code != operator.WhyEmpty || used.Sentence != want {
		t.Errorf("with a budget that is used up: %+v, want %s", used, want)
	}
	if why := waits(func(*operator.BucketInfo) {}).Why(false, shaper.LatePermits{}); why.Code != operator.WhyNoDispatcher {
		t.Errorf("without a dispatcher: %+v", why)
	}
}

// The same of a bucket in Redis, as far as a test can make it true at once.
func TestWhy(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	b := rig.Bucket("b", 1000)
	b.MaxInFlight = 1
	b.Quotas = []admission.Rate{{Count: 20, Per: 24 * time.Hour, Unit: admission.UnitRequests}}
	op, err := operator.New(operator.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	wants := func(code operator.WhyCode) {
		t.Helper()
		for {
			info, err := op.Bucket("b").Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if why := info.Why(true, shaper.LatePermits{}); why.Code == code {
				return
			}
			select {
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
				t.Fatalf("never %s", code)
			}
		}
	}
	enqueue := func(job shaper.Job) {
		t.Helper()
		job.Bucket, job.Payload = "b", []byte("x")
		if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	enqueue(shaper.Job{ID: "later", Delay: time.Hour})
	wants(operator.WhyLater)
	if _, err := client.Cancel(t.Context(), "b", "later"); err != nil {
		t.Fatal(err)
	}
	wants(operator.WhyEmpty)
	for range 23 { // a permit that comes late counts against the quota of 20 too
		enqueue(shaper.Job{})
	}
	if err := op.As("anna").Bucket("b").Pause(t.Context(), "tests"); err != nil {
		t.Fatal(err)
	}
	wants(operator.WhyPaused)
	if _, err := op.As("anna").Bucket("b").Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	goOn := make(chan struct{})
	d, err := dispatcher.New(dispatcher.Config{Redis: conn, Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{
		"b": shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			if err := a.Depart(); err != nil {
				return shaper.Returned("late")
			}
			<-goOn
			return shaper.Done(200)
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	wants(operator.WhyInFlight)
	close(goOn)
	wants(operator.WhyQuota)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
