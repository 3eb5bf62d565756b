package shaper

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
)

// scrape is what the series of a registry are, as "name{labels}" by those whose name begins so.
func scrape(t *testing.T, registry prometheus.Gatherer, prefix string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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

func registryOf(c prometheus.Collector) prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	return registry
}

func mustPatch(t *testing.T, pairs ...string) BucketPatch {
	t.Helper()
	var p BucketPatch
	for i := 0; i < len(pairs); i += 2 {
		if err := p.Put(Setting(pairs[i]), pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// waiting is a worker that says when it has begun and ends when it is told or cut off.
type waiting struct {
	began chan *Attempt
	end   chan Outcome
	cause chan error
}

func newWaiting() *waiting {
	return &waiting{began: make(chan *Attempt, 100), end: make(chan Outcome, 100), cause: make(chan error, 100)}
}

func (w *waiting) Deliver(ctx context.Context, a *Attempt) Outcome {
	w.began <- a
	select {
	case outcome := <-w.end:
		return outcome
	case <-ctx.Done():
		w.cause <- context.Cause(ctx)
		return Retry("cut_off", "")
	}
}

func bucketAt(t *testing.T, name, rate string) Bucket {
	t.Helper()
	b := DefaultBucket()
	b.Name, b.Worker = name, "test"
	r, err := admission.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	b.Rate = r
	return b
}

// settleHead takes a job of bucket "b" and settles it with a result of settle.lua.
func settleHead(t *testing.T, conn *redis.Client, id, result string) {
	t.Helper()
	ctx, k := t.Context(), bucketKeys("b")
	body := conn.HGet(ctx, k.body(), id).Val()
	pipe := conn.Pipeline()
	pipe.LRem(ctx, k.queue(""), 1, id)
	pipe.HSet(ctx, k.meta(), id, "3 1 0 0 0 c ")
	pipe.ZAdd(ctx, k.leases(), redis.Z{Member: id, Score: float64(time.Now().Add(time.Hour).UnixMicro())})
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	mark := strings.Fields(body)[2][:markLength]
	reply, err := lua.Settle.Run(ctx, conn, nil, k.forSettle(""), wakeChannel, "b", 0, "", 1, "", 1, 1, "c", result, 0, "", id, mark, 1)
	if settled, intsErr := lua.Integers(reply); err != nil || intsErr != nil || settled[1] != 1 {
		t.Fatalf("settle %s: %v, %v", id, reply, err)
	}
}

func testBucket(name string, rate int64) Bucket {
	b := DefaultBucket()
	b.Name, b.Worker = name, "test"
	b.Rate = admission.Rate{Count: rate, Per: time.Second, Unit: admission.UnitRequests}
	return b
}

func connect(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	client, err := redisconn.Connect("redis://"+addr, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// flowing is a bucket whose flows are named by key.
func flowing(name, key string) Bucket {
	b := testBucket(name, 1)
	flow := DefaultFlowSettings()
	flow.Key = key
	b.Flow = &flow
	return b
}

// grouped is a bucket whose flows are in groups, both named by the job.
func grouped(name string, rate int64) Bucket {
	b := testBucket(name, rate)
	flow, group := DefaultFlowSettings(), DefaultGroupSettings()
	flow.Key, group.Key = FlowKeyJob, FlowKeyJob
	b.Flow, b.Group = &flow, &group
	return b
}

func mustRate(t *testing.T, text string) admission.Rate {
	t.Helper()
	r, err := admission.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rate(text string) admission.Rate {
	r, err := admission.ParseRate(text)
	if err != nil {
		panic(err)
	}
	return r
}

// clients returns n clients of one bucket on one server, as of n processes.
func clients(t *testing.T, n int, b Bucket) []*actors {
	t.Helper()
	server := redistest.Start(t)
	all := make([]*actors, n)
	for i := range all {
		var err error
		if all[i], err = newActors(ClientConfig{Redis: connect(t, server.Addr()), Buckets: []Bucket{b}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all[i].Close)
	}
	return all
}

// admitted sends jobs of one caller and counts those that got in. Redis is
// asked about each, unless their ids are to be made by the client: others may
// be there already.
func admitted(t *testing.T, c *actors, n int, job Job) (in int, last Receipt) {
	t.Helper()
	job.Bucket, job.Payload = c.Buckets()[0], []byte("x")
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = job
		switch job.ID {
		case "":
			jobs[i].ID = fmt.Sprint("own-", lastID.Add(1))
		case generated:
			jobs[i].ID = ""
		}
	}
	receipts, err := c.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		if r.Refusal == nil {
			in++
		}
	}
	return in, receipts[n-1]
}

const generated = "generated"

var lastID atomic.Int64

func caller(name string) Job { return Job{Identity: admission.Identity{Caller: name}} }

// tripHook does something at one of the round trips of a client.
type tripHook struct {
	at   int
	do   func(trip func() error) error
	seen atomic.Int64
}

func (h *tripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if int(h.seen.Add(1)) != h.at {
			return next(ctx, cmd)
		}
		err := h.do(func() error { return next(ctx, cmd) })
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func (h *tripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if int(h.seen.Add(1)) != h.at {
			return next(ctx, cmds)
		}
		err := h.do(func() error { return next(ctx, cmds) })
		if err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

func perSecond(n int64) admission.Rate {
	return admission.Rate{Count: n, Per: time.Second, Unit: admission.UnitRequests}
}

func pooled(name string, rate, weight int64, pool Pool) Bucket {
	b := testBucket(name, rate)
	b.Pool, b.Weight = &pool, weight
	return b
}

func rateOf(count int64, per time.Duration) admission.Rate {
	return admission.Rate{Count: count, Per: per, Unit: admission.UnitRequests}
}

// actors are a producer and an operator with the same buckets.
type actors struct {
	*Client
	op   *Operator
	Conn redis.UniversalClient
}

func newActors(cfg ClientConfig) (*actors, error) {
	client, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	op, err := NewOperator(OperatorConfig{
		Redis: cfg.Redis, Buckets: cfg.Buckets, Timeout: cfg.Timeout, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return &actors{client, op, cfg.Redis}, err
}

// bubbleClient is a connection to a store within a bubble of testing/synctest.
func bubbleClient(t *testing.T, dial func() (net.Conn, error)) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return dial() },
		MaxRetries:               -1,
		Protocol:                 2,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		ConnMaxIdleTime:          -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func poolNamed(name string) *Pool { return &Pool{Name: name, Rate: perSecond(500), MaxInFlight: 100} }

// in is the bucket in a pool, or in none.
func in(pool *Pool, b Bucket) Bucket {
	b.Pool = pool
	return b
}
