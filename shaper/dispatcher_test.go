package shaper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A stop claims no more and waits for what is under way.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	worker := newWaiting()
	// With its one worker occupied, no claim is under way at the stop: what that gets would be delivered.
	cancel, ended := start(w, worker, func(cfg *DispatcherConfig) { cfg.Concurrency = 1 })
	w.submit("first")
	<-worker.began
	cancel()
	w.submit("second")
	select {
	case err := <-ended:
		t.Fatalf("Run ended under a delivery: %v", err)
	default:
		worker.end <- Done(200)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if first, second := w.job("first"), w.job("second"); first.State != StateDone || second.State != StateQueued || second.Attempts != 0 {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
}

// A stop comes before all else that is ready.
func TestStoppedLoopClaimsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	d, err := NewDispatcher(DispatcherConfig{
		Redis: connect(t, w.proxy.Addr()), Buckets: []Bucket{w.bucket}, Workers: map[string]Worker{"test": newWaiting()},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.submit("j")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		r := newDrain(d, d.store.buckets["b"], t.Context())
		r.nudge()
		r.loop(stopped)
	}
	if j := w.job("j"); j.State != StateQueued {
		t.Errorf("%+v", j)
	}
}

// A delivery that does not end in time is cut off, and its outcome is kept.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	worker := newWaiting()
	stop := dispatch(w, worker, func(cfg *DispatcherConfig) { cfg.ShutdownTimeout = 50 * time.Millisecond })
	w.submit("j")
	<-worker.began
	if err := stop(); err != nil {
		t.Error(err)
	}
	if cause := <-worker.cause; !errors.Is(cause, errStopped) {
		t.Errorf("the delivery ended by %v", cause)
	}
	if j := w.job("j"); j.State != StateRetrying || j.Attempts != 1 || j.Last.Reason != "cut_off" {
		t.Errorf("job %+v", j)
	}
}

// Jobs whose slot has not come go back at a cut-off, without an attempt.
func TestStopReturnsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	b := testBucket("b", 20)
	b.Burst = 3
	w := newWorld(t, b)
	for i := range 8 {
		w.submit(fmt.Sprint("j", i))
	}
	worker := newWaiting()
	stop := dispatch(w, worker, func(cfg *DispatcherConfig) { cfg.ShutdownTimeout = time.Millisecond })
	<-worker.began
	if err := stop(); err != nil {
		t.Error(err)
	}
	infos, err := w.client.op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished != 8 || infos[0].InFlight != 0 {
		t.Fatalf("bucket %+v, %v", infos, err)
	}
	for i := range infos[0].Waiting {
		// Which of them is first is not promised: each delivery returns by itself.
		if j := w.job(fmt.Sprint("j", 8-infos[0].Waiting+i)); j.State != StateQueued || j.Attempts != 0 {
			t.Errorf("job %+v", j)
		}
	}
}

func TestWorkerOutcomes(t *testing.T) {
	t.Parallel()
	b := testBucket("b", 200)
	b.Retry = RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	w := newWorld(t, b)
	tries := make(map[string]*atomic.Int64)
	ended := make(chan string, 100)
	for _, id := range []string{"panics", "nothing", "fails", "third", "permanent", "late"} {
		tries[id] = new(atomic.Int64)
	}
	stop := dispatch(w, WorkerFunc(func(_ context.Context, a *Attempt) Outcome {
		n := tries[a.ID].Add(1)
		if a.ID != "late" && a.Number != int(n) {
			t.Errorf("%s: attempt number %d is the %d. delivery", a.ID, a.Number, n)
		}
		defer func() { ended <- a.ID }()
		switch a.ID {
		case "panics":
			panic("at work")
		case "nothing":
			return Outcome{}
		case "fails":
			return Outcome{Result: ResultRetry, Reason: "http_500", Status: 500, Body: "sorry"}
		case "third":
			if n < 3 {
				return Retry("timeout", "")
			}
		case "permanent":
			return Dead("http_400", "no")
		case "late":
			if n == 1 {
				return Returned("late")
			}
			if a.Number != 1 {
				t.Errorf("a return counted as attempt: %d", a.Number)
			}
		}
		return Done(200)
	}), nil)
	for id := range tries {
		w.submit(id)
	}
	for range 3 + 3 + 3 + 3 + 1 + 2 {
		<-ended
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]struct {
		state    State
		attempts int
		cause    string
		reason   string
	}{
		"panics":    {StateDead, 3, CauseExhausted, "panic"},
		"nothing":   {StateDead, 3, CauseExhausted, "no_result"},
		"fails":     {StateDead, 3, CauseExhausted, "http_500"},
		"third":     {state: StateDone},
		"permanent": {StateDead, 1, CausePermanent, "http_400"},
		"late":      {state: StateDone},
	} {
		j := w.job(id)
		if j.State != want.state || j.Attempts != want.attempts || j.Last.Cause != want.cause || j.Last.Reason != want.reason {
			t.Errorf("%s: %+v", id, j)
		}
	}
	if j := w.job("fails"); j.Last.Status != 500 || j.Last.Body != "sorry" {
		t.Errorf("last response %+v", j.Last)
	}
	dead, err := w.client.op.DeadLetters(t.Context(), "b", 0, 10)
	if err != nil || len(dead) != 4 {
		t.Errorf("dead letters %+v, %v", dead, err)
	}
	if moved, err := w.client.op.RedriveAll(t.Context(), "b", 10); err != nil || moved.Moved != 4 {
		t.Errorf("redrive %+v, %v", moved, err)
	}
}

// Somebody else has the job: the delivery here is cancelled.
func TestLostLeaseCancelsTheDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	worker := newWaiting()
	dispatch(w, worker, func(cfg *DispatcherConfig) { cfg.Lease = 3 * time.Second })
	w.submit("j")
	first := <-worker.began
	takeLease(w, "j")
	if cause := <-worker.cause; !errors.Is(cause, errLeaseLost) {
		t.Errorf("the delivery ended by %v", cause)
	}
	second := <-worker.began // its outcome was stale, and the job comes again
	worker.end <- Done(200)
	if first.Number != 1 || second.Number != 2 {
		t.Errorf("numbers %d and %d", first.Number, second.Number)
	}
}

// A job that loses its dispatcher three times in a row is poison.
func TestPoisonJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	worker := newWaiting()
	dispatch(w, worker, func(cfg *DispatcherConfig) { cfg.Lease = 3 * time.Second })
	w.submit("j")
	for range MaxCrashes {
		<-worker.began
		takeLease(w, "j")
		<-worker.cause
	}
	j := w.job("j")
	if j.State != StateDead || j.Last.Cause != CausePoison || j.Lost != MaxCrashes || j.Attempts != 0 {
		t.Errorf("job %+v", j)
	}
	if !strings.Contains(j.Why(), CausePoison) {
		t.Errorf("why: %s", j.Why())
	}
}

// An idle dispatcher is woken: it does not find jobs at its next patrol.
func TestIdleDispatcherIsWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 1000))
	var patrol lookCounter
	dispatch(w, WorkerFunc(w.note), func(cfg *DispatcherConfig) { cfg.Redis.AddHook(&patrol) })
	n := 0
	for range 8 {
		patrol.wantWoken(t, func() {
			n++
			w.submit(fmt.Sprint("j", n))
			w.await(1)
		})
	}
}

// The cost of being idle: three commands a bucket in one round trip.
func TestCostOfAPatrol(t *testing.T) {
	t.Parallel()
	const buckets = 20
	w := newWorld(t, testBucket("b", 10))
	client := w.server.Client()
	cfg := DispatcherConfig{Redis: client, Workers: map[string]Worker{"test": WorkerFunc(w.note)}}
	for i := range buckets {
		cfg.Buckets = append(cfg.Buckets, testBucket(fmt.Sprint("b", i), 10))
	}
	d, err := NewDispatcher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var drains []*drain
	for _, name := range d.store.order {
		drains = append(drains, newDrain(d, d.store.buckets[name], t.Context()))
		drains[len(drains)-1].setSleeping(true)
	}
	commands := func() (n int) {
		t.Helper()
		info, err := client.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "total_commands_processed:")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	d.look(t.Context(), drains) // opens the connection
	look := func() int {
		before := commands()
		for _, sight := range d.look(t.Context(), drains) {
			if sight.err != nil {
				t.Fatal(sight.err)
			}
		}
		return commands() - before - 1 // less the INFO
	}
	cost := look()
	if cost != 3*buckets {
		t.Errorf("a look at %d buckets costs %d commands", buckets, cost)
	}
	if perSecond := float64(cost) / patrolInterval.Seconds(); perSecond > 40 {
		t.Errorf("idle, %d buckets cost %.0f commands a second", buckets, perSecond)
	}
	for _, r := range drains {
		r.setSleeping(false)
	}
	if cost := look(); cost != buckets {
		t.Errorf("a look at %d buckets whose drains look for work themselves costs %d commands", buckets, cost)
	}
}

func TestNewDispatcherChecks(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	valid := func() DispatcherConfig {
		return DispatcherConfig{
			Redis: client, Buckets: []Bucket{testBucket("b", 1)},
			Workers: map[string]Worker{"test": WorkerFunc(func(context.Context, *Attempt) Outcome { return Done(0) })},
		}
	}
	if _, err := NewDispatcher(valid()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*DispatcherConfig){
		"concurrency":        func(c *DispatcherConfig) { c.Concurrency = -1 },
		"lease":              func(c *DispatcherConfig) { c.Lease = time.Millisecond },
		"no worker of kind":  func(c *DispatcherConfig) { c.Workers = nil },
		"no Redis client":    func(c *DispatcherConfig) { c.Redis = nil },
		"is given twice":     func(c *DispatcherConfig) { c.Buckets = append(c.Buckets, c.Buckets[0]) },
		"rate: is missing":   func(c *DispatcherConfig) { c.Buckets[0].Rate.Count, c.Buckets[0].Rate.Per = 0, 0 },
		"max_in_flight: 0":   func(c *DispatcherConfig) { c.Buckets[0].MaxInFlight = 0 },
		"retry.max_attempts": func(c *DispatcherConfig) { c.Buckets[0].Retry.MaxAttempts = 0 },
	} {
		cfg := valid()
		change(&cfg)
		if _, err := NewDispatcher(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}
