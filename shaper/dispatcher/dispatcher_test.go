package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// A stop claims no more and waits for what is under way.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	worker := rig.NewWaiting()
	// With its one worker occupied, no claim is under way at the stop: what that gets would be delivered.
	cancel, ended := start(w, worker, func(cfg *Config) { cfg.Concurrency = 1 })
	w.Submit("first")
	<-worker.Began
	cancel()
	w.Submit("second")
	select {
	case err := <-ended:
		t.Fatalf("Run ended under a delivery: %v", err)
	default:
		worker.End <- shaper.Done(200)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if first, second := w.Job("first"), w.Job("second"); first.State != shaper.StateDone || second.State != shaper.StateQueued || second.Attempts != 0 {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
}

// A stop comes before all else that is ready.
func TestStoppedLoopClaimsNothing(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	d := must.Get(New(Config{
		Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, rig.NewWaiting()),
	}))(t)
	w.Submit("j")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		r := newBucketLoop(d, d.store.Known("b"), t.Context())
		r.claims.wake.put()
		r.claims.loop(stopped, r.shared)
	}
	if j := w.Job("j"); j.State != shaper.StateQueued {
		t.Errorf("%+v", j)
	}
}

// A delivery that does not end in time is cut off, and its outcome is kept.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	worker := rig.NewWaiting()
	stop := dispatch(w, worker, func(cfg *Config) { cfg.ShutdownTimeout = 50 * time.Millisecond })
	w.Submit("j")
	<-worker.Began
	if err := stop(); err != nil {
		t.Error(err)
	}
	if cause := <-worker.Cause; !errors.Is(cause, errStopped) {
		t.Errorf("the delivery ended by %v", cause)
	}
	if j := w.Job("j"); j.State != shaper.StateRetrying || j.Attempts != 1 || j.Last.Reason != "cut_off" {
		t.Errorf("job %+v", j)
	}
}

// Jobs whose slot has not come go back at a cut-off, without an attempt.
func TestStopReturnsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 20)
	b.Burst = 3
	w := rig.NewWorld(t, b)
	for i := range 8 {
		w.Submit(fmt.Sprint("j", i))
	}
	worker := rig.NewWaiting()
	stop := dispatch(w, worker, func(cfg *Config) { cfg.ShutdownTimeout = time.Millisecond })
	<-worker.Began
	if err := stop(); err != nil {
		t.Error(err)
	}
	infos, err := w.Client.Op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished != 8 || infos[0].InFlight != 0 {
		t.Fatalf("bucket %+v, %v", infos, err)
	}
	// Which of them have begun is not promised.
	queued := int64(0)
	for i := range 8 {
		switch j := w.Job(fmt.Sprint("j", i)); {
		case j.State == shaper.StateQueued && j.Attempts == 0:
			queued++
		case j.State != shaper.StateRetrying || j.Attempts != 1:
			t.Errorf("job %+v", j)
		}
	}
	if queued != infos[0].Waiting || queued == 8 {
		t.Errorf("%d of 8 jobs were not sent, and %d wait", queued, infos[0].Waiting)
	}
}

func TestWorkerOutcomes(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 200)
	b.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	w := rig.NewWorld(t, b)
	tries := make(map[string]*atomic.Int64)
	ended := make(chan string, 100)
	for _, id := range []string{"panics", "nothing", "fails", "third", "permanent", "late"} {
		tries[id] = new(atomic.Int64)
	}
	stop := dispatch(w, shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		n := tries[a.ID].Add(1)
		if a.ID != "late" && a.Number != int(n) {
			t.Errorf("%s: attempt number %d is the %d. delivery", a.ID, a.Number, n)
		}
		defer func() { ended <- a.ID }()
		switch a.ID {
		case "panics":
			panic("at work")
		case "nothing":
			return shaper.Outcome{}
		case "fails":
			return shaper.Outcome{Result: shaper.ResultRetry, Reason: "http_500", Status: 500, Body: "sorry"}
		case "third":
			if n < 3 {
				return shaper.Retry("timeout", "")
			}
		case "permanent":
			return shaper.Dead("http_400", "no")
		case "late":
			if n == 1 {
				return shaper.Returned("late")
			}
			must.Equal(t, a.Number, 1, "a return counted as attempt")
		}
		return shaper.Done(200)
	}), nil)
	for id := range tries {
		w.Submit(id)
	}
	for range 3 + 3 + 3 + 3 + 1 + 2 {
		<-ended
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]struct {
		state    shaper.State
		attempts int
		cause    string
		reason   string
	}{
		"panics":    {shaper.StateDead, 3, shaper.CauseExhausted, "panic"},
		"nothing":   {shaper.StateDead, 3, shaper.CauseExhausted, "no_result"},
		"fails":     {shaper.StateDead, 3, shaper.CauseExhausted, "http_500"},
		"third":     {state: shaper.StateDone},
		"permanent": {shaper.StateDead, 1, shaper.CausePermanent, "http_400"},
		"late":      {state: shaper.StateDone},
	} {
		j := w.Job(id)
		if j.State != want.state || j.Attempts != want.attempts || j.Last.Cause != want.cause || j.Last.Reason != want.reason {
			t.Errorf("%s: %+v", id, j)
		}
	}
	if j := w.Job("fails"); j.Last.Status != 500 || j.Last.Body != "sorry" {
		t.Errorf("last response %+v", j.Last)
	}
	dead, err := w.Client.Op.Bucket("b").Dead().List(t.Context(), 0, 10)
	if err != nil || len(dead) != 4 {
		t.Errorf("dead letters %+v, %v", dead, err)
	}
	if moved, err := w.Client.Op.As("anna").Bucket("b").Dead().RedriveAll(t.Context(), 10); err != nil || moved.Moved != 4 {
		t.Errorf("redrive %+v, %v", moved, err)
	}
}

// Somebody else has the job: the delivery here is cancelled.
func TestLostLeaseCancelsTheDelivery(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	worker := rig.NewWaiting()
	dispatch(w, worker, func(cfg *Config) { cfg.Lease = 3 * time.Second })
	w.Submit("j")
	first := <-worker.Began
	takeLease(w, "j")
	if cause := <-worker.Cause; !errors.Is(cause, errLeaseLost) {
		t.Errorf("the delivery ended by %v", cause)
	}
	second := <-worker.Began // its outcome was stale, and the job comes again
	worker.End <- shaper.Done(200)
	if first.Number != 1 || second.Number != 2 {
		t.Errorf("numbers %d and %d", first.Number, second.Number)
	}
}

// A job that loses its dispatcher three times in a row is poison.
func TestPoisonJob(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	worker := rig.NewWaiting()
	dispatch(w, worker, func(cfg *Config) { cfg.Lease = 3 * time.Second })
	w.Submit("j")
	for range shaper.MaxCrashes {
		<-worker.Began
		takeLease(w, "j")
		<-worker.Cause
	}
	j := w.Job("j")
	if j.State != shaper.StateDead || j.Last.Cause != shaper.CausePoison || j.Lost != shaper.MaxCrashes || j.Attempts != 0 {
		t.Errorf("job %+v", j)
	}
	if !strings.Contains(j.Why(), shaper.CausePoison) {
		t.Errorf("why: %s", j.Why())
	}
}

// An idle dispatcher is woken: it does not find jobs at its next patrol.
func TestIdleDispatcherIsWoken(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 1000))
	var patrol lookCounter
	dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) { cfg.Redis.AddHook(&patrol) })
	n := 0
	for range 8 {
		patrol.wantWoken(t, func() {
			n++
			w.Submit(fmt.Sprint("j", n))
			w.Await(1)
		})
	}
}

// The cost of being idle: buckets in which there was nothing share a command. Others cost three commands each, in one round trip, and share one
// that asks for jobs that expire.
func TestCostOfAPatrol(t *testing.T) {
	t.Parallel()
	const buckets = 20
	w := rig.NewWorld(t, rig.Bucket("b", 10))
	client := w.Server.Client()
	cfg := Config{Redis: client}
	for i := range buckets {
		cfg.Buckets = append(cfg.Buckets, rig.Bucket(fmt.Sprint("b", i), 10))
	}
	cfg.Workers = rig.Workers(cfg.Buckets, shaper.WorkerFunc(w.Note))
	d := must.Get(New(cfg))(t)
	var patrols []*bucketPatrol
	for _, name := range d.store.Names() {
		patrols = append(patrols, newBucketLoop(d, d.store.Known(name), t.Context()).patrol)
		patrols[len(patrols)-1].claims.sleeping.Store(true)
	}
	commands := func() (n int) {
		t.Helper()
		info := must.Get(client.Info(t.Context(), "stats").Result())(t)
		_, rest, _ := strings.Cut(info, "total_commands_processed:")
		must.Get(fmt.Sscan(rest, &n))(t)
		return n
	}
	d.checkBuckets(t.Context(), patrols) // opens the connection
	look := func() int {
		before := commands()
		for _, sight := range d.checkBuckets(t.Context(), patrols) {
			if sight.err != nil {
				t.Fatal(sight.err)
			}
		}
		return commands() - before - 1 // less the INFO
	}
	must.Equal(t, look(), 1, "a look at %d buckets in which there was nothing costs commands", buckets)
	must.OK(t, client.RPush(t.Context(), patrols[3].Keys.Places("")[0], "a job").Err())
	for i, sight := range d.checkBuckets(t.Context(), patrols) {
		must.Equal(t, sight.waiting, (i == 3), "a job waits in bucket 3: of bucket %d the look says", i)
	}
	for _, r := range patrols {
		r.quiet = false
	}
	cost := look()
	must.Equal(t, cost, 3*buckets+1, "a look at %d buckets costs commands", buckets)
	if perSecond := float64(cost) / patrolInterval.Seconds(); perSecond > 40 {
		t.Errorf("idle, %d buckets cost %.0f commands a second", buckets, perSecond)
	}
	for _, r := range patrols {
		r.quiet = false
		r.claims.sleeping.Store(false)
	}
	must.Equal(t, look(), buckets+1, "a look at %d buckets whose loops look for work themselves costs commands", buckets)
}

func TestNewDispatcherChecks(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	valid := func() Config {
		return Config{
			Redis: client, Buckets: []shaper.Bucket{rig.Bucket("b", 1)},
			Workers: rig.Workers([]shaper.Bucket{rig.Bucket("b", 1)}, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(0) })),
		}
	}
	must.Get(New(valid()))(t)
	for want, change := range map[string]func(*Config){
		"concurrency":        func(c *Config) { c.Concurrency = -1 },
		"lease":              func(c *Config) { c.Lease = time.Millisecond },
		"no worker is":       func(c *Config) { c.Workers = nil },
		"no Redis client":    func(c *Config) { c.Redis = nil },
		"is given twice":     func(c *Config) { c.Buckets = append(c.Buckets, c.Buckets[0]) },
		"rate: is missing":   func(c *Config) { c.Buckets[0].Rate.Count, c.Buckets[0].Rate.Per = 0, 0 },
		"max_in_flight: -1":  func(c *Config) { c.Buckets[0].MaxInFlight = -1 },
		"retry.max_attempts": func(c *Config) { c.Buckets[0].Retry.MaxAttempts = 0 },
	} {
		cfg := valid()
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}
