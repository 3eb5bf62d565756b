package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// selfDispatching is a bucket in a bubble, whose jobs processes send themselves.
type selfDispatching struct {
	*testing.T
	store  *miniredis.Miniredis
	bucket shaper.Bucket
	client *rig.Actors
	hook   func() redis.Hook // of each connection; nil none
}

func newSelfDispatching(t *testing.T, b shaper.Bucket) *selfDispatching {
	t.Helper()
	l := &selfDispatching{T: t, store: miniredis.NewMiniRedis(), bucket: b}
	l.store.ClockTTL(true)
	t.Cleanup(l.store.Close)
	var err error
	if l.client, err = rig.NewActors(producer.Config{Redis: rig.BubbleClient(t, l.store.Dial), Buckets: []shaper.Bucket{b}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.client.Close)
	must.OK(t, l.client.JoinPools(t.Context()))
	return l
}

func (l *selfDispatching) conn() *redis.Client {
	conn := rig.BubbleClient(l.T, l.store.Dial)
	if l.hook != nil {
		conn.AddHook(l.hook())
	}
	return conn
}

// sender is a process that sends jobs.
type sender struct {
	*Permits
	client *producer.Client
	leases *Leases
	end    func()
}

func (l *selfDispatching) sender() *sender {
	l.Helper()
	conn := l.conn()
	client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{l.bucket}}))(l)
	leases := must.Get(NewLeases(LeasesConfig{Redis: conn}))(l)
	s := &sender{Permits: NewPermits(client, leases), client: client, leases: leases}
	s.end = sync.OnceFunc(func() { s.Close(); leases.Close(); client.Close() })
	l.Cleanup(s.end)
	return s
}

// dispatch runs a dispatcher until the function is called that it returns.
func (l *selfDispatching) dispatch(worker shaper.Worker, change func(*Config)) (stop func()) {
	l.Helper()
	cfg := Config{Redis: l.conn(), Buckets: []shaper.Bucket{l.bucket}, Workers: rig.Workers([]shaper.Bucket{l.bucket}, worker)}
	if change != nil {
		change(&cfg)
	}
	d := must.Get(New(cfg))(l)
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(stop)
	return stop
}

func (l *selfDispatching) job() shaper.Job {
	return shaper.Job{Bucket: l.bucket.Name, Payload: []byte("secret"), Headers: map[string][]string{"X-A": {"secret"}}}
}

// wantEmpty waits until nothing is left of any job.
func (l *selfDispatching) wantEmpty() {
	l.Helper()
	for range 100 {
		infos := must.Get(l.client.Op.BucketInfos(l.Context(), l.bucket.Name))(l)
		must.Equal(l, infos[0].Dead, 0, "dead letters")
		if infos[0].Unfinished == 0 && infos[0].InFlight == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
	}
	l.Fatal("jobs are left")
}

// TestPermitsKeepThePace: jobs that two processes send themselves and jobs of a worker leave in one even stream, beside Redis and 50 ms from it.
func TestPermitsKeepThePace(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]time.Duration{"near": 0, "far": 25 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate, jobs = 100, 450 // the switch to the jobs of the two processes costs up to 15 slots, once
				l := newSelfDispatching(t, rig.Bucket("b", rate))
				if way > 0 {
					l.hook = func() redis.Hook { return far(way) }
				}
				// A Redis that nobody has started a lent job with answers the first start with NOSCRIPT. That start tells the clock half a round
				// trip wrong, and its one job leaves so much too early.
				must.OK(t, rig.BubbleClient(t, l.store.Dial).ScriptLoad(t.Context(), lua.Start.Text()).Err())
				var history checker.History
				send := func(a *shaper.Attempt) shaper.Outcome {
					if a.Depart() != nil {
						return shaper.Returned("late")
					}
					history.Delivered(a.ID, a.Number, time.Now())
					return shaper.Done(200)
				}
				for i := range jobs {
					receipts, err := l.client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: fmt.Sprint("queued", i), Payload: []byte("{}")})
					if err != nil || receipts[0].Refusal != nil {
						t.Fatal(receipts, err)
					}
					history.Admitted(receipts[0].ID, time.Now())
				}
				var clients sync.WaitGroup
				for range 2 {
					s := l.sender()
					for range jobs / 2 {
						clients.Go(func() {
							permit, err := s.Acquire(t.Context(), l.job())
							if err != nil {
								t.Error(err)
								return
							}
							history.Admitted(permit.Receipt().ID, time.Now())
							if string(permit.Attempt().Payload) != "secret" {
								t.Errorf("the payload is %q", permit.Attempt().Payload)
							}
							outcome := send(permit.Attempt())
							permit.Settle(outcome)
							must.Equal(t, outcome.Result, shaper.ResultDone, "%+v", outcome)
						})
					}
				}
				synctest.Wait()
				for range 3 {
					l.dispatch(shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
						if strings.HasPrefix(a.ID, "queued") {
							return send(a)
						}
						t.Errorf("a worker got job %s", a.ID)
						return shaper.Done(0)
					}), nil)
				}
				clients.Wait()
				l.wantEmpty()
				r := history.Check()
				t.Logf("%s; most in 1s %d, in 100ms %d", r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
				if err := r.Err(); err != nil || r.Extra != 0 {
					t.Errorf("%v: %s", err, r)
				}
				if got := r.MostIn(time.Second); got > rate+2 {
					t.Errorf("%d in a second", got)
				}
				if got := r.MostIn(100 * time.Millisecond); got > rate/10+2 {
					t.Errorf("%d in 100 ms", got)
				}
				if r.Rate < .95*rate {
					t.Errorf("%.1f/s", r.Rate)
				}
			})
		})
	}
}

// TestSenderThatDies has a process die that has started a job: its lease ends, and then nobody sends it.
func TestSenderThatDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newSelfDispatching(t, rig.Bucket("b", 100))
		s := l.sender()
		l.dispatch(l.noWorker(), func(cfg *Config) { cfg.Lease = 5 * time.Second })
		permit := must.Get(s.Acquire(t.Context(), l.job()))(t)
		id := permit.Receipt().ID
		s.leases.Close()
		s.client.Close()
		defer permit.done() // no such process waits for it
		for info := l.see(id); info.State == shaper.StateInFlight; info = l.see(id) {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble: no time passes
		}
		l.wantEmpty()
	})
}

func (l *selfDispatching) see(id string) shaper.JobInfo {
	l.Helper()
	info, err := l.client.Job(l.Context(), l.bucket.Name, id)
	if err != nil && !errors.Is(err, shaper.ErrNotFound) {
		l.Fatal(err)
	}
	return info
}

// TestPermitOutlivesItsDispatcher: what was started goes on without any dispatcher, for longer than its lease.
func TestPermitOutlivesItsDispatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 5 * time.Second
		l := newSelfDispatching(t, rig.Bucket("b", 100))
		s := l.sender()
		stop := l.dispatch(l.noWorker(), func(cfg *Config) { cfg.Lease = lease })
		permit := must.Get(s.Acquire(t.Context(), l.job()))(t)
		stop()
		l.dispatch(l.noWorker(), func(cfg *Config) { cfg.Lease = lease })
		time.Sleep(3 * lease) //nolint:forbidigo // in a bubble: no time passes
		if info := l.see(permit.Receipt().ID); info.State != shaper.StateInFlight || info.Lost != 0 || permit.Context().Err() != nil {
			t.Errorf("after three leases: %+v, %v", info, permit.Context().Err())
		}
		permit.Settle(shaper.Done(200))
		l.wantEmpty()
	})
}

// TestHeldPermit has the downstream ask to wait: the job gets another slot after that.
func TestHeldPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newSelfDispatching(t, rig.Bucket("b", 100))
		s := l.sender()
		l.dispatch(l.noWorker(), nil)
		permit := must.Get(s.Acquire(t.Context(), l.job()))(t)
		if err := permit.Again(t.Context()); err == nil {
			t.Error("another permit before the first one is settled")
		}
		began := time.Now()
		permit.Settle(shaper.Outcome{Result: shaper.ResultHeld, RetryAfter: 3 * time.Second, Reason: "http_429", Status: 429, Signal: shaper.SignalThrottled})
		must.OK(t, permit.Again(t.Context()))
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second || permit.Attempt().Epoch != 2 {
			t.Errorf("epoch %d after %s", permit.Attempt().Epoch, took)
		}
		permit.Settle(shaper.Retry("http_500", "it does not work")) // the caller decides what to do: it ends the job
		l.wantEmpty()
	})
}

// TestCallersOfPermitsThatGo has callers that wait no longer: before there is a slot, and while it is on its way.
func TestCallersOfPermitsThatGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newSelfDispatching(t, rig.BucketAt(t, "b", "30/m"))
		s := l.sender()
		l.dispatch(l.noWorker(), nil)
		var callers sync.WaitGroup
		for i := range 10 { // the first one has a slot at once, and the others one each two seconds
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*990*time.Millisecond)
			callers.Go(func() {
				defer cancel()
				permit, err := s.Acquire(ctx, l.job())
				switch {
				case err == nil:
					permit.Settle(shaper.Done(200))
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
			})
		}
		callers.Wait()
		s.Close()
		l.wantEmpty()
	})
}

// TestRefusedPermits: a job that is refused, cancelled or has a name gets no permit, and the error says why.
func TestRefusedPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := rig.Bucket("b", 100)
		b.Capacity = 1
		l := newSelfDispatching(t, b)
		s := l.sender()
		first := make(chan error, 1)
		go func() { _, err := s.Acquire(t.Context(), l.job()); first <- err }()
		synctest.Wait()
		var refused *producer.RefusedError
		if _, err := s.Acquire(t.Context(), l.job()); !errors.As(err, &refused) || refused.Receipt.Refusal.Reason != shaper.ReasonBucketFull {
			t.Errorf("into a full bucket: %v", err)
		}
		named := l.job()
		named.ID = "a"
		if _, err := s.Acquire(t.Context(), named); err == nil || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("with an id: %v", err)
		}
		must.Get(l.client.Op.As("anna").Bucket("b").Purge(t.Context(), operator.PurgeOptions{}))(t)
		var ended *producer.EndedError
		if err := <-first; !errors.As(err, &ended) {
			t.Errorf("a job that was purged: %v", err)
		}
	})
}

// TestUsageOfPermits: a permit reserves its estimate of a budget, and is charged what was used.
func TestUsageOfPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := rig.Bucket("b", 100)
		b.Budgets = shaper.Budgets{rig.Rate("1000 tokens/h")}
		b.BudgetBurst = 100
		l := newSelfDispatching(t, b)
		s := l.sender()
		l.dispatch(l.noWorker(), nil)
		job := l.job()
		job.Units = shaper.Units{shaper.UnitInput: 100, shaper.UnitOutput: 300}
		permit := must.Get(s.Acquire(t.Context(), job))(t)
		charged := func() int64 {
			infos := must.Get(l.client.Op.BucketInfos(t.Context(), "b"))(t)
			return infos[0].Budgets[0].Charged
		}
		if got := charged(); got != 400 || permit.Attempt().Reserved.String() != "input:100,output:300" {
			t.Errorf("charged %d while it is under way, of %s", got, permit.Attempt().Reserved)
		}
		outcome := shaper.Done(200)
		outcome.Used = shaper.Units{shaper.UnitInput: 90, shaper.UnitOutput: 30}
		permit.Settle(outcome)
		must.Equal(t, charged(), 120, "charged, want what was used")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Acquire(ctx, job); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.Close()
		l.wantEmpty()
		must.Equal(t, charged(), 120, "charged after a caller that went")
	})
}
