package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

const soakLength = "SOAK_LENGTH"

// What the soak runs with. Its jobs are in three buckets: one without flows, one with flows and
// one whose flows are in groups. The last two share a pool.
const (
	soakDispatchers = 3
	soakLease       = 2 * time.Second
	soakProducers   = 2
	soakCallers     = 4
	soakSpends      = 100 // what one of the callers may spend in the bucket without flows
	soakHorizon     = 200 * time.Millisecond

	plainBucket, flowsBucket, groupsBucket, soakPool = "plain", "flows", "groups", "shared"
)

// TestRandomOperations does everything that may be done to jobs, buckets and connections, at
// random, on a real Redis, and judges what came of it: no job is lost or stuck, no window of any
// bound has more slots in it than it allows, and no key is left that should not be.
//
// Slots and leases are read from Redis, so that it does not matter how fast the machine is. A seed
// gives the same operations again, though not at the same instants.
func TestRandomOperations(t *testing.T) {
	harness.BesideOthers(t)
	seed := rand.Uint64()
	if text := os.Getenv(harness.SoakSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", harness.SoakSeed, err)
		}
	}
	length := 8 * time.Second
	if redistest.Soak {
		length = 40 * time.Second
	}
	if text := os.Getenv(soakLength); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakLength, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d: %s=%d go test ./test -run TestRandomOperations", seed, harness.SoakSeed, seed)
		}
	})
	s := newSoak(t, seed)
	s.run(length)
	s.drain()
	s.judge()
	s.wantNoKeys()
	t.Logf("seed %d, %s: %s", seed, length, s.figures())
}

// soak is one run.
type soak struct {
	t       *testing.T
	seed    uint64
	began   time.Time
	server  *redistest.Server
	watched *harness.SlotMonitor
	stall   *harness.StallWatch
	buckets []shaper.Bucket

	operator  *operator.Operator // straight to Redis, so that what it did is known
	control   *operator.Operator
	producers []*soakProducer

	mu        sync.Mutex
	processes []*soakProcess // of each place the one that runs now
	faults    []soakFault
	pacers    map[string]*pacer // by path
	pauses    []pausing
	counts    map[string]int // what was done how often

	helpers sync.WaitGroup // who undoes what was done
	history checker.History
	book    book
	serial  atomic.Int64
}

// soakProducer is a producer behind a connection of its own.
type soakProducer struct {
	proxy  *faultproxy.Proxy
	client *producer.Client
}

// soakProcess is a dispatcher behind a connection of its own.
type soakProcess struct {
	number int // no other one has it
	proxy  *faultproxy.Proxy
	dead   atomic.Bool // killed: it delivers no more
	stop   context.CancelFunc
	done   chan struct{}
}

// soakFault is when something was done to the connection of a dispatcher.
type soakFault struct {
	process  int
	from, to time.Time
}

func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	s := &soak{t: t, seed: seed, began: time.Now(), server: redistest.Start(t), counts: map[string]int{}, buckets: soakBuckets(t)}
	s.pacers = pacersOf(s.buckets)
	s.watched, s.stall = harness.Monitor(t, s.server), harness.WatchStalls()
	s.operator = s.newOperator("redis://"+s.server.Addr(), time.Minute)
	s.control = s.operator.As("soak")
	for range soakProducers {
		proxy := s.proxy()
		s.producers = append(s.producers, &soakProducer{proxy, s.client("redis://"+proxy.Addr(), 0)})
	}
	for range soakDispatchers {
		s.processes = append(s.processes, s.Start())
	}
	t.Cleanup(func() { s.stall.Stop() })
	return s
}

// soakBuckets are the buckets with all their bounds.
func soakBuckets(t *testing.T) []shaper.Bucket {
	t.Helper()
	rate := func(text string) admission.Rate {
		rate, err := admission.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		return rate
	}
	pool := &shaper.Pool{Name: soakPool, Rate: rate("80/s"), Burst: 12, Quotas: []admission.Rate{rate("175/2s")}, MaxInFlight: 24}
	buckets := make([]shaper.Bucket, 3)
	for i, name := range []string{plainBucket, flowsBucket, groupsBucket} {
		b := shaper.DefaultBucket()
		b.Name, b.Rate, b.Burst = name, rate("60/s"), 10
		b.Capacity, b.ScheduledCapacity, b.MaxInFlight = 150, 50, 14
		b.Quotas = []admission.Rate{rate("115/2s")}
		b.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: 50 * time.Millisecond, MaxBackoff: 400 * time.Millisecond}
		flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
		flow.Key, flow.Rate, flow.Burst, flow.Capacity, flow.MaxInFlight = shaper.FlowKeyJob, rate("15/s"), 4, 25, 3
		flow.Quotas = []admission.Rate{rate("28/2s")}
		group.Key, group.Rate, group.Burst, group.Capacity, group.MaxInFlight = shaper.FlowKeyJob, rate("25/s"), 2, 50, 6
		group.Quotas = []admission.Rate{rate("47/2s")}
		switch name {
		case plainBucket: // here it is the rate that holds back, in the others the other bounds too
			b.MaxInFlight, b.Quotas = 50, []admission.Rate{rate("150/2s")}
			b.Limits = []admission.Limit{{
				Name: "spends", Algorithm: admission.FixedWindow, Per: []string{"caller"},
				Limit: rate(fmt.Sprintf("%d/744h", soakSpends)), Tiers: map[string]admission.Rate{"many": rate("1000000/744h")},
			}}
		case flowsBucket:
			b.Pool, b.Flow, b.Weight = pool, &flow, 2
		case groupsBucket:
			b.Pool, b.Flow, b.Group = pool, &flow, &group
		}
		buckets[i] = b
	}
	return buckets
}

func (s *soak) connect(url string, timeout time.Duration) redis.UniversalClient {
	s.t.Helper()
	conn, err := redisconn.Connect(url, redisconn.Options{Timeout: timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *soak) newOperator(url string, timeout time.Duration) *operator.Operator {
	s.t.Helper()
	op, err := operator.New(operator.Config{Redis: s.connect(url, timeout), Buckets: s.buckets, Timeout: timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	return op
}

// client is one of the buckets, with a connection of its own to an address.
func (s *soak) client(url string, timeout time.Duration) *producer.Client {
	s.t.Helper()
	conn := s.connect(url, timeout)
	client, err := producer.New(producer.Config{Redis: conn, Buckets: s.buckets, Timeout: timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

func (s *soak) proxy() *faultproxy.Proxy {
	s.t.Helper()
	proxy, err := faultproxy.New(s.server.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// Start starts a dispatcher.
func (s *soak) Start() *soakProcess {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	p := &soakProcess{number: int(s.serial.Add(1)), proxy: s.proxy(), stop: stop, done: make(chan struct{})}
	conn, err := redisconn.Connect("redis://"+p.proxy.Addr(), redisconn.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	d, err := dispatcher.New(dispatcher.Config{
		Redis: conn, Buckets: s.buckets, Workers: harness.WorkersOf(s.buckets, shaper.WorkerFunc(s.deliver(p))),
		Concurrency: 40, Lease: soakLease, ShutdownTimeout: soakLease,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = d.Run(ctx) // it is cut off from Redis at times, also when it stops
		_ = conn.Close()
	}()
	s.t.Cleanup(func() {
		stop()
		<-p.done
	})
	return p
}

// deliver is what the worker of a dispatcher does with a job: it is done at last, or dead.
func (s *soak) deliver(p *soakProcess) func(context.Context, *shaper.Attempt) shaper.Outcome {
	return func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		if p.dead.Load() || a.Depart() != nil {
			return shaper.Returned("late")
		}
		at := time.Now()
		random := rand.New(rand.NewPCG(s.seed, uint64(len(a.ID))<<32|uint64(number(a.ID)*16+a.Number)))
		s.history.Delivered(a.ID, a.Number, at)
		outcome, panics := chooseOutcome(random)
		s.book.delivered(a.ID, soakDelivery{process: p.number, number: a.Number, at: at, result: outcome.Result, panics: panics})
		hold := time.Duration(random.IntN(100)) * time.Millisecond
		if random.IntN(30) == 0 {
			hold = 400 * time.Millisecond
		}
		select {
		case <-time.After(hold):
		case <-ctx.Done():
			return shaper.Retry("stopped", ctx.Err().Error())
		}
		if panics {
			panic("the soak's worker panics at times")
		}
		return outcome
	}
}

// chooseOutcome says how an attempt ends.
func chooseOutcome(random *rand.Rand) (outcome shaper.Outcome, panics bool) {
	switch n := random.IntN(100); {
	case n < 3:
		return shaper.Retry("panic", ""), true
	case n < 6:
		return shaper.Dead("refused", "for good"), false
	case n < 14:
		return shaper.Retry("http_500", "not now"), false
	case n < 16:
		return shaper.Outcome{Result: shaper.ResultRetry, Reason: "http_429", Status: 429, RetryAfter: 100 * time.Millisecond}, false
	}
	return shaper.Done(200), false
}
