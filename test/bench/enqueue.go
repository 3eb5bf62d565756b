package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// enqueue measures jobs a second with a number of callers.
func enqueue(ctx context.Context, server *redistest.Server, callers int, bar float64, rounds int, length time.Duration) ([]string, error) {
	client, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	b, err := bucket("1/s")
	if err != nil {
		return nil, err
	}
	ours, err := newClient(client, b)
	if err != nil {
		return nil, err
	}
	theirs := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr(), PoolSize: 64})
	defer theirs.Close()

	sides := []func(context.Context) error{
		func(ctx context.Context) error {
			receipts, err := ours.Enqueue(ctx, shaper.Job{Bucket: "bench", Payload: payload})
			if err == nil && receipts[0].Refusal != nil {
				err = fmt.Errorf("refused: %s", receipts[0].Refusal.Detail)
			}
			return err
		},
		func(ctx context.Context) error {
			_, err := theirs.EnqueueContext(ctx, asynq.NewTask("bench", payload))
			return err
		},
	}
	rates := make([][]float64, len(sides))
	ratios := make([]float64, 0, rounds)
	for range rounds {
		for i, side := range sides {
			if err := client.FlushDB(ctx).Err(); err != nil { // a server of our own
				return nil, err
			}
			rate, err := hammer(ctx, callers, length, func(int) func(context.Context) error { return side })
			if err != nil {
				return nil, err
			}
			rates[i] = append(rates[i], rate)
		}
		ratios = append(ratios, rates[0][len(rates[0])-1]/rates[1][len(rates[1])-1])
	}
	ratio := median(ratios)
	fmt.Printf("enqueue, %3d callers   tundish %7.0f jobs/s   asynq %7.0f jobs/s   ratio %.2f (bar %.1f)\n",
		callers, median(rates[0]), median(rates[1]), ratio, bar)
	if ratio < bar {
		return []string{fmt.Sprintf("enqueue with %d callers is %.2f times asynq, want %.1f", callers, ratio, bar)}, nil
	}
	return nil, nil
}
