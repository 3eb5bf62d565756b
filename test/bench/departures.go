package main

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

const (
	departureWorkers = 256
	departuresOurs   = 15_000
	departuresTheirs = 3_000
	departuresWarmUp = 500
)

// departures compares the departures of one dispatcher with an asynq server, both with a worker that does nothing.
func departures(ctx context.Context, server *redistest.Server, rounds int) ([]string, error) {
	var missed []string
	for _, kind := range []struct {
		name  string
		shape shape
		goal  float64
	}{
		{"plain", shapes[0], 4},
		{"1,000 flows", shapes[1], 2.4},
	} {
		ours := func() (float64, error) {
			counted := newCounter(departuresWarmUp, departuresOurs)
			return counted.rateOf(ctx, server, kind.shape, departureWorkers, counted)
		}
		theirs := func() (float64, error) {
			counted := newCounter(departuresWarmUp, departuresTheirs)
			return counted.rateOfAsynq(ctx, server, departureWorkers, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				counted.note()
				return nil
			}))
		}
		rates, err := alternate(rounds, ours, theirs)
		if err != nil {
			return nil, fmt.Errorf("departures, %s: %w", kind.name, err)
		}
		figures := fmt.Sprintf("tundish %6.0f/s   asynq %6.0f/s", median(rates[0]), median(rates[1]))
		missed = append(missed, atLeast(kind.goal).check("departures, "+kind.name, figures, medianRatio(rates[0], rates[1]))...)
	}
	return missed, nil
}

// rateOf returns the departures a second of a dispatcher, by the counter of its worker.
func (c *counter) rateOf(ctx context.Context, server *redistest.Server, s shape, workers int, worker shaper.Worker) (float64, error) {
	store, err := connect(server)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	if err := store.FlushDB(ctx).Err(); err != nil { // a server of our own
		return 0, err
	}
	producer, err := newClient(store, s.bucket)
	if err != nil {
		return 0, err
	}
	// Some more than are counted, so that all flows have work up to the last.
	if err := fill(ctx, producer, int(c.to)+2*max(s.flows, workers), s.job); err != nil {
		return 0, err
	}
	run, err := newRun(store, workers, worker, s.bucket)
	if err != nil {
		return 0, err
	}
	err = during(ctx, run, func() error { return c.wait(ctx) })
	return c.rate(), err
}

// rateOfAsynq returns the same for an asynq server, by the counter of its handler.
func (c *counter) rateOfAsynq(ctx context.Context, server *redistest.Server, workers int, handler asynq.Handler) (float64, error) {
	if err := server.Client().FlushDB(ctx).Err(); err != nil { // a server of our own
		return 0, err
	}
	opt := asynq.RedisClientOpt{Addr: server.Addr(), PoolSize: 64}
	producer := asynq.NewClient(opt)
	defer producer.Close()
	if err := inParallel(64, int(c.to)+2*workers, func(int) error {
		_, err := producer.EnqueueContext(ctx, asynq.NewTask("bench", payload))
		return err
	}); err != nil {
		return 0, err
	}
	s := asynq.NewServer(opt, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel, Logger: quiet{log.New(io.Discard, "", 0)}})
	if err := s.Start(handler); err != nil {
		return 0, err
	}
	defer s.Shutdown()
	err := c.wait(ctx)
	return c.rate(), err
}
