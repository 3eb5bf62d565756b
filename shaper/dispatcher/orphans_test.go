package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// killed is a hook of a process that dies: nothing that it sends arrives from then on.
type killed struct {
	far
	dead atomic.Bool
}

func (k *killed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	next = k.far.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if k.dead.Load() {
			cmd.SetErr(errors.New("dead"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (k *killed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	next = k.far.ProcessPipelineHook(next)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !k.dead.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errors.New("dead"))
		}
		return cmds[0].Err()
	}
}

// TestOrphansOfManyBucketsFarFromRedis: a dispatcher dies with a job of each bucket in flight. The other one takes them all back within
// a lease and 5 s, though it looks after many buckets and Redis is 50 ms away: in rounds of one bucket after the other, it would have taken
// its own round for an outage.
func TestOrphansOfManyBucketsFarFromRedis(t *testing.T) {
	t.Parallel()
	for _, levels := range []string{"plain", "flows", "groups"} {
		t.Run(levels, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testOrphans(t, levels) })
		})
	}
}

func testOrphans(t *testing.T, levels string) {
	t.Helper()
	const (
		number = 120
		lease  = 4 * time.Second
	)
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	t.Cleanup(server.Close)
	var buckets []shaper.Bucket
	for i := range number {
		b := rig.Bucket(fmt.Sprint("b", i), 100)
		switch levels {
		case "flows":
			b = rig.Flowing(b.Name, shaper.FlowKeyJob)
		case "groups":
			b = rig.Grouped(b.Name, 100)
		}
		buckets = append(buckets, b)
	}
	client := must.Get(rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, server.Dial), Buckets: buckets}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	dispatch := func(hook redis.Hook, deliver func(context.Context, *shaper.Attempt) shaper.Outcome) {
		t.Helper()
		conn := rig.BubbleClient(t, server.Dial)
		conn.AddHook(hook)
		d := must.Get(New(Config{Redis: conn, Buckets: buckets, Workers: rig.Workers(buckets, shaper.WorkerFunc(deliver)), Lease: lease, Concurrency: 1,
			ShutdownTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}))(t)
		go func() { ended <- d.Run(ctx) }()
	}
	var held, back atomic.Int64
	first := &killed{far: far(25 * time.Millisecond)}
	dispatch(first, func(ctx context.Context, _ *shaper.Attempt) shaper.Outcome {
		held.Add(1)
		<-ctx.Done()
		return shaper.Returned("dead")
	})
	for _, b := range buckets {
		must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, ID: "j", Flow: "f", Group: "g", Payload: []byte("{}")}))(t)
	}
	<-time.After(5 * time.Second)
	dispatch(far(25*time.Millisecond), func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Number == 2 && a.ID == "j" { // after the first one, which its process did not live to settle
			back.Add(1)
		}
		return shaper.Done(200)
	})
	<-time.After(5 * time.Second)
	if held.Load() != number || back.Load() != 0 {
		t.Fatalf("%d jobs are in flight, %d came back", held.Load(), back.Load())
	}
	first.dead.Store(true)
	<-time.After(lease + 5*time.Second)
	if back.Load() != number {
		t.Errorf("%d of %d jobs are back 5 s after their leases have ended", back.Load(), number)
	}
	stop()
	<-ended
	<-ended
}

// TestOutage: an outage is the time in which no call was answered, however long one of them took.
func TestOutage(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			do   func(o *outage)
			long bool
		}{
			{"a call that took long, and no other was answered", func(o *outage) {
				began := time.Now()
				<-time.After(11 * time.Second)
				o.worked(t.Context(), began, lease)
			}, true},
			{"a call that took long, while others were answered", func(o *outage) {
				began := time.Now()
				for range 4 {
					<-time.After(5 * time.Second)
					o.worked(t.Context(), time.Now(), lease)
				}
				o.worked(t.Context(), began, lease)
			}, false},
			{"calls that failed for long", func(o *outage) {
				for range 3 {
					o.failed(t.Context(), time.Now(), errors.New("away"))
					<-time.After(5 * time.Second)
				}
				o.worked(t.Context(), time.Now(), lease)
			}, true},
			{"calls that failed for a while", func(o *outage) {
				o.failed(t.Context(), time.Now(), errors.New("away"))
				<-time.After(9 * time.Second)
				o.worked(t.Context(), time.Now(), lease)
			}, false},
			{"no call for long", func(o *outage) {
				o.worked(t.Context(), time.Now(), lease)
				<-time.After(time.Minute)
				o.worked(t.Context(), time.Now(), lease)
			}, false},
			{"a call without a connection, while others were answered", func(o *outage) {
				began := time.Now()
				<-time.After(5 * time.Second)
				o.worked(t.Context(), time.Now(), lease)
				o.failed(t.Context(), began, redis.ErrPoolTimeout)
				if !o.since.IsZero() {
					t.Error("an outage of Redis, as this process had too few connections")
				}
				<-time.After(11 * time.Second)
				o.worked(t.Context(), time.Now(), lease)
			}, false},
			{"a call without a connection, and no other was answered", func(o *outage) {
				o.failed(t.Context(), time.Now(), redis.ErrPoolTimeout)
				<-time.After(11 * time.Second)
				o.worked(t.Context(), time.Now(), lease)
			}, true},
		} {
			o := &outage{log: slog.New(slog.DiscardHandler)}
			c.do(o)
			must.Equal(t, !o.lastLong().IsZero(), c.long, "%s: an outage", c.name)
		}
	})
}

// TestStall: a ticker that runs late says that the process stood still, whoever runs first afterwards.
func TestStall(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			pause time.Duration
			ticks bool // the ticker runs before somebody asks
			long  bool
		}{
			{"the ticker runs first", 11 * time.Second, true, true},
			{"somebody asks first", 11 * time.Second, false, true},
			{"it is short", 9 * time.Second, true, false},
		} {
			s := &stall{limit: limit}
			s.note(time.Now())
			<-time.After(c.pause)
			end := time.Now()
			if c.ticks {
				if still := s.note(end); still > 0 != c.long || c.long && still != c.pause {
					t.Errorf("%s: it stood still for %s", c.name, still)
				}
				<-time.After(limit / ticksInLimit)
			}
			if got := s.lastLong(); got.Equal(end) != c.long || got.IsZero() == c.long {
				t.Errorf("%s: the last stall ended at %v, the pause at %v", c.name, got, end)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		s := &stall{limit: limit}
		go s.watch(ctx, slog.New(slog.DiscardHandler))
		<-time.After(time.Hour)
		if !s.lastLong().IsZero() {
			t.Error("a stall of a process that runs")
		}
		stop()
	})
}

// TestStalledProcessPoisonsNothing: a process stands still past its leases, again and again. It keeps its job: the sweeper gives it the time
// for a heartbeat.
func TestStalledProcessPoisonsNothing(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	worker := rig.NewWaiting()
	const lease = time.Minute
	d := must.Get(New(Config{Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, worker), Lease: lease,
		ShutdownTimeout: time.Second}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	w.Submit("j")
	<-worker.Began
	loop := (*d.loops.Load())[0]
	runOut := func() {
		t.Helper()
		must.OK(t, d.store.Redis.ZAdd(t.Context(), loop.Keys.Leases(), redis.Z{Member: "j", Score: 1}).Err())
	}
	for range shaper.MaxCrashes + 1 {
		d.stall.mu.Lock()
		d.stall.lastTick = time.Now().Add(-2 * lease) // the process stood still for two leases
		d.stall.mu.Unlock()
		runOut()
		patrolOf(loop).tend(ctx, findings{deadline: 1})
		jobs, _ := loop.held.now()
		must.OK(t, loop.held.extend(ctx, jobs, ""))
	}
	if j := w.Job("j"); j.State != shaper.StateInFlight || j.Lost != 0 {
		t.Errorf("after stalls: job %+v", j)
	}
	d.stall.mu.Lock()
	d.stall.lastTick, d.stall.long = time.Now(), time.Time{}
	d.stall.mu.Unlock()
	runOut()
	patrolOf(loop).tend(ctx, findings{deadline: 1})
	if j := w.Job("j"); j.Lost != 1 {
		t.Errorf("without a stall the lease of a job that ran out is lost: job %+v", j)
	}
	worker.End <- shaper.Done(200)
	stop()
	<-ended
}
