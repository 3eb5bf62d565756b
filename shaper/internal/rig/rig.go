// Package rig has what tests of several packages need: buckets, clients, workers and servers.
package rig

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Scrape returns the values of a registry's series whose names have a prefix, as "name{labels}".
func Scrape(t *testing.T, registry prometheus.Gatherer, prefix string) map[string]float64 {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	found := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			found[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

func RegistryOf(c prometheus.Collector) prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	return registry
}

func MustPatch(t *testing.T, pairs ...string) operator.BucketPatch {
	t.Helper()
	var p operator.BucketPatch
	for i := 0; i < len(pairs); i += 2 {
		must.OK(t, p.Put(shaper.Setting(pairs[i]), pairs[i+1]))
	}
	return p
}

// Waiting is a worker that signals when it has begun, and ends when the test sends an outcome or its context is cancelled.
type Waiting struct {
	Began chan *shaper.Attempt
	End   chan shaper.Outcome
	Cause chan error
}

func NewWaiting() *Waiting {
	return &Waiting{Began: make(chan *shaper.Attempt, 100), End: make(chan shaper.Outcome, 100), Cause: make(chan error, 100)}
}

func (w *Waiting) Deliver(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
	w.Began <- a
	select {
	case outcome := <-w.End:
		return outcome
	case <-ctx.Done():
		w.Cause <- context.Cause(ctx)
		return shaper.Retry("cut_off", "")
	}
}

func BucketAt(t *testing.T, name, rate string) shaper.Bucket {
	t.Helper()
	b := shaper.DefaultBucket()
	b.Name = name
	r := must.Get(admission.ParseRate(rate))(t)
	b.Rate = r
	return b
}

// SettleHead takes a job of bucket "b" and settles it with a result of settle.lua.
func SettleHead(t *testing.T, conn *redis.Client, id, result string) {
	t.Helper()
	ctx, k := t.Context(), store.BucketKeys("b")
	body := conn.HGet(ctx, k.Body(), id).Val()
	pipe := conn.Pipeline()
	pipe.LRem(ctx, k.Queue(""), 1, id)
	pipe.HSet(ctx, k.Meta(), id, "3 1 0 0 0 c ")
	pipe.ZAdd(ctx, k.Leases(), redis.Z{Member: id, Score: float64(time.Now().Add(time.Hour).UnixMicro())})
	must.Get(pipe.Exec(ctx))(t)
	mark := strings.Fields(body)[2][:codec.MarkLength]
	reply, err := lua.Settle.Run(ctx, conn, nil, k.Of(lua.Settle, ""), store.WakeChannel, "b", 0, "", 1, "", 1, 1, "c", result, 0, "", 0, "-", 0, "", "", "", 0, "", "", id, mark, 1)
	if settled, intsErr := lua.Integers(reply); err != nil || intsErr != nil || settled[1] != 1 {
		t.Fatalf("settle %s: %v, %v", id, reply, err)
	}
}

func Bucket(name string, rate int64) shaper.Bucket {
	b := shaper.DefaultBucket()
	b.Name = name
	b.Rate = admission.Rate{Count: rate, Per: time.Second, Unit: admission.UnitRequests}
	return b
}

// Patience bounds a call to Redis in a test that is not about slow calls: its server shares CPUs with compilers and other tests.
const Patience = 20 * time.Second

func Connect(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	client := must.Get(redisconn.Connect("redis://"+addr, redisconn.Options{Timeout: Patience}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Flowing returns a bucket whose flows are named by key.
func Flowing(name, key string) shaper.Bucket {
	b := Bucket(name, 1)
	flow := shaper.DefaultFlowSettings()
	flow.Key = key
	b.Flow = &flow
	return b
}

// Grouped returns a bucket whose flows are in groups, both named by the job.
func Grouped(name string, rate int64) shaper.Bucket {
	b := Bucket(name, rate)
	flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	flow.Key, group.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
	b.Flow, b.Group = &flow, &group
	return b
}

func MustRate(t *testing.T, text string) admission.Rate {
	t.Helper()
	r := must.Get(admission.ParseRate(text))(t)
	return r
}

func Rate(text string) admission.Rate {
	r, err := admission.ParseRate(text)
	if err != nil {
		panic(err)
	}
	return r
}

// Clients returns n clients of one bucket on one server, as of n processes.
func Clients(t *testing.T, n int, b shaper.Bucket) []*Actors {
	t.Helper()
	server := redistest.Start(t)
	all := make([]*Actors, n)
	for i := range all {
		var err error
		if all[i], err = NewActors(producer.Config{Redis: Connect(t, server.Addr()), Buckets: []shaper.Bucket{b}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all[i].Close)
	}
	return all
}

// Admitted enqueues n jobs of one caller and returns how many were admitted. Redis looks up each id, unless job.ID is Generated: then the client
// generates the ids, and the script looks up none.
func Admitted(t *testing.T, c *Actors, n int, job shaper.Job) (in int, last shaper.Receipt) {
	t.Helper()
	job.Bucket, job.Payload = c.Buckets()[0], []byte("x")
	jobs := make([]shaper.Job, n)
	for i := range jobs {
		jobs[i] = job
		switch job.ID {
		case "":
			jobs[i].ID = fmt.Sprint("own-", lastID.Add(1))
		case Generated:
			jobs[i].ID = ""
		}
	}
	receipts := must.Get(c.Enqueue(t.Context(), jobs...))(t)
	for _, r := range receipts {
		if r.Refusal == nil {
			in++
		}
	}
	return in, receipts[n-1]
}

const Generated = "generated"

var lastID atomic.Int64

func Caller(name string) shaper.Job { return shaper.Job{Identity: admission.Identity{Caller: name}} }

// TripHook runs a function at one of the round trips of a client. Loading a library does not count, nor does a PING.
type TripHook struct {
	At   int
	Do   func(trip func() error) error
	Seen atomic.Int64
}

func (h *TripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *TripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "function" || cmd.Name() == "ping" || int(h.Seen.Add(1)) != h.At {
			return next(ctx, cmd)
		}
		err := h.Do(func() error { return next(ctx, cmd) })
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func (h *TripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if int(h.Seen.Add(1)) != h.At {
			return next(ctx, cmds)
		}
		err := h.Do(func() error { return next(ctx, cmds) })
		if err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

func PerSecond(n int64) admission.Rate {
	return admission.Rate{Count: n, Per: time.Second, Unit: admission.UnitRequests}
}

func Pooled(name string, rate, weight int64, pool shaper.Pool) shaper.Bucket {
	b := Bucket(name, rate)
	b.Pool, b.Weight = &pool, weight
	return b
}

func RateOf(count int64, per time.Duration) admission.Rate {
	return admission.Rate{Count: count, Per: per, Unit: admission.UnitRequests}
}

// Actors are a producer and an operator with the same buckets.
type Actors struct {
	*producer.Client
	Op   *operator.Operator
	Conn redis.UniversalClient

	mu      sync.Mutex
	buckets []shaper.Bucket
	log     *slog.Logger
}

// JoinPools does what a starting dispatcher does with the buckets of the client: it writes their settings and moves them into their pools.
func (a *Actors) JoinPools(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	owner, err := store.New(store.Authoritative, a.Conn, a.buckets, 0, a.log, nil)
	if err != nil {
		return err
	}
	return owner.JoinPools(ctx)
}

// Reconfigure reconfigures the client.
func (a *Actors) Reconfigure(buckets []shaper.Bucket) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.Client.Reconfigure(buckets)
	if err == nil {
		a.buckets = buckets
	}
	return err
}

// NewActors gives calls the timeout [Patience] if cfg has no other.
func NewActors(cfg producer.Config) (*Actors, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, Patience)
	client, err := producer.New(cfg)
	if err != nil {
		return nil, err
	}
	op, err := operator.New(operator.Config{
		Redis: cfg.Redis, Buckets: cfg.Buckets, Timeout: cfg.Timeout, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return &Actors{Client: client, Op: op, Conn: cfg.Redis, buckets: cfg.Buckets, log: cfg.Logger}, err
}

// BubbleClient is a connection to a store within a bubble of testing/synctest.
func BubbleClient(t *testing.T, dial func() (net.Conn, error)) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return redistest.WithRoom(dial()) },
		MaxRetries:               -1,
		Protocol:                 2,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		ConnMaxIdleTime:          -1,
		PoolSize:                 1000, // nothing waits for a connection: the timer of such a wait belongs to no bubble
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func PoolNamed(name string) *shaper.Pool {
	return &shaper.Pool{Name: name, Rate: PerSecond(500), MaxInFlight: 100}
}

// In is the bucket in a pool, or in none.
func In(pool *shaper.Pool, b shaper.Bucket) shaper.Bucket {
	b.Pool = pool
	return b
}

// Workers has one worker deliver for all the buckets.
func Workers(buckets []shaper.Bucket, worker shaper.Worker) map[string]shaper.Worker {
	workers := make(map[string]shaper.Worker, len(buckets))
	for i := range buckets {
		workers[buckets[i].Name] = worker
	}
	return workers
}
