package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

const latencyTries = 40

// latency measures the time from enqueue to arrival on an idle system.
func latency(ctx context.Context, server *redistest.Server) ([]string, error) {
	client, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	ours, err := ourLatency(ctx, server)
	if err != nil {
		return nil, err
	}
	byDefault, err := asynqLatency(ctx, server, 0)
	if err != nil {
		return nil, err
	}
	fastest, err := asynqLatency(ctx, server, 10*time.Millisecond)
	if err != nil {
		return nil, err
	}
	row := func(name string, took []time.Duration) {
		fmt.Printf("idle latency           %-28s p50 %9s   p99 %9s\n", name, at(took, 50), at(took, 99))
	}
	row("tundish", ours)
	row("asynq, default polling (1s)", byDefault)
	row("asynq, polling every 10ms", fastest)
	if at(ours, 50) > at(fastest, 50) {
		return []string{"idle latency is above asynq's with its fastest polling"}, nil
	}
	return nil, nil
}

func ourLatency(ctx context.Context, server *redistest.Server) ([]time.Duration, error) {
	client, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	b, err := bucket("1000/s")
	if err != nil {
		return nil, err
	}
	arrived := make(chan time.Time, 1)
	run, err := newRun(client, 0, shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome {
		arrived <- time.Now()
		return shaper.Done(200)
	}), b)
	if err != nil {
		return nil, err
	}
	c, err := newClient(client, b)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	err = during(ctx, run, func() (err error) {
		took, err = pings(ctx, arrived, func() error { return enqueueAll(ctx, c, []shaper.Job{{Bucket: "bench", Payload: []byte("x")}}) })
		return err
	})
	return took, err
}

func asynqLatency(ctx context.Context, server *redistest.Server, poll time.Duration) ([]time.Duration, error) {
	opt := asynq.RedisClientOpt{Addr: server.Addr()}
	arrived := make(chan time.Time, 1)
	s := asynq.NewServer(opt, asynq.Config{
		Concurrency: 16, TaskCheckInterval: poll, LogLevel: asynq.FatalLevel,
		Logger: quiet{log.New(io.Discard, "", 0)},
	})
	if err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		arrived <- time.Now()
		return nil
	})); err != nil {
		return nil, err
	}
	defer s.Shutdown()
	c := asynq.NewClient(opt)
	defer c.Close()
	return pings(ctx, arrived, func() error {
		_, err := c.EnqueueContext(ctx, asynq.NewTask("bench", []byte("x")))
		return err
	})
}

// pings enqueues one job at a time, at irregular moments, and records when it arrives. The first ones warm up and do not count.
func pings(ctx context.Context, arrived <-chan time.Time, enqueue func() error) ([]time.Duration, error) {
	const warmUp = 3
	took := make([]time.Duration, 0, latencyTries)
	for i := range warmUp + latencyTries {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20*time.Millisecond + rand.N(60*time.Millisecond)):
		}
		start := time.Now()
		if err := enqueue(); err != nil {
			return nil, err
		}
		select {
		case at := <-arrived:
			if i >= warmUp {
				took = append(took, at.Sub(start))
			}
		case <-time.After(10 * time.Second):
			return nil, fmt.Errorf("a job did not arrive within 10s")
		}
	}
	slices.Sort(took)
	return took, nil
}

// quiet is a silent logger for asynq.
type quiet struct{ *log.Logger }

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}
