package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Only this file makes clients and dispatchers. To measure a commit whose library makes
// them in another way, give the bench of today that commit's copy of this file.

type client = producer.Client

func connect(server *redistest.Server) (redis.UniversalClient, error) {
	return redisconn.Connect(server.URL(), redisconn.Options{Timeout: 5 * time.Second})
}

func newClient(store redis.UniversalClient, buckets ...shaper.Bucket) (*client, error) {
	return producer.New(producer.Config{Redis: store, Buckets: buckets, Timeout: 30 * time.Second})
}

// newRun returns the Run of a dispatcher. A concurrency of 0 is the default.
func newRun(store redis.UniversalClient, concurrency int, worker shaper.Worker, buckets ...shaper.Bucket) (func(context.Context) error, error) {
	workers := make(map[string]shaper.Worker, len(buckets))
	for i := range buckets {
		workers[buckets[i].Name] = worker
	}
	d, err := dispatcher.New(dispatcher.Config{
		Redis: store, Buckets: buckets, Concurrency: concurrency, Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	return d.Run, nil
}

// bucketOf returns a bucket that accepts any number of jobs.
func bucketOf(name string, rate int64) shaper.Bucket {
	b := shaper.DefaultBucket()
	b.Name, b.Capacity, b.MaxInFlight, b.Shed = name, shaper.MaxCapacity, 100_000, shaper.NoShedding
	b.Rate = admission.Rate{Count: rate, Per: time.Second, Unit: admission.UnitRequests}
	return b
}

// withFlows parts a bucket by the flow that each job names.
func withFlows(b shaper.Bucket) shaper.Bucket {
	f := shaper.DefaultFlowSettings()
	f.Key, f.MaxFlows = shaper.FlowKeyJob, shaper.MaxFlows
	b.Flow = &f
	return b
}

// withGroups puts the flows of a bucket into the groups that their jobs name.
func withGroups(b shaper.Bucket) shaper.Bucket {
	g := shaper.DefaultGroupSettings()
	g.Key = shaper.FlowKeyJob
	b.Group = &g
	return b
}

// withBudgets bounds the tokens of a bucket so that none waits for them.
func withBudgets(b shaper.Bucket) shaper.Bucket {
	for _, per := range []time.Duration{time.Minute, 24 * time.Hour} {
		b.Budgets = append(b.Budgets, admission.Rate{Count: shaper.MaxBudgetAmount, Per: per, Unit: shaper.UnitTokens})
	}
	return b
}

func inPool(b shaper.Bucket, rate int64) shaper.Bucket {
	b.Pool = &shaper.Pool{Name: "pool", Rate: admission.Rate{Count: rate, Per: time.Second, Unit: admission.UnitRequests}}
	return b
}

// fill enqueues n jobs in calls of a thousand.
func fill(ctx context.Context, c *client, n int, job func(i int) shaper.Job) error {
	const most = 1000
	batch := make([]shaper.Job, 0, most)
	for i := range n {
		if batch = append(batch, job(i)); len(batch) < most && i < n-1 {
			continue
		}
		if err := enqueueAll(ctx, c, batch); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return nil
}

// enqueueAll requires that every job of a call is admitted.
func enqueueAll(ctx context.Context, c *client, jobs []shaper.Job) error {
	receipts, err := c.Enqueue(ctx, jobs...)
	if err != nil {
		return err
	}
	for i := range receipts {
		if r := receipts[i].Refusal; r != nil {
			return fmt.Errorf("job %d refused: %s", i, r.Detail)
		}
	}
	return nil
}

// during runs a dispatcher while do runs, and until it has settled its claims.
func during(ctx context.Context, run func(context.Context) error, do func() error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- run(running) }()
	err := do()
	stop()
	return errors.Join(err, <-stopped)
}

func bucket(rate string) (shaper.Bucket, error) {
	b := shaper.DefaultBucket()
	b.Name, b.Capacity = "bench", shaper.MaxCapacity
	r, err := admission.ParseRate(rate)
	b.Rate = r
	b.Limits = []admission.Limit{{
		Name: "all", Algorithm: admission.TokenBucket,
		Limit: admission.Rate{Count: 1_000_000, Per: time.Second, Unit: admission.UnitRequests}, Burst: 1_000_000,
	}}
	return b, err
}
