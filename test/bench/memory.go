package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// memory measures the Redis memory of a waiting job beyond its payload.
func memory(ctx context.Context, server *redistest.Server) ([]string, error) {
	const jobs, bar = 100_000, 250
	client, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	b, err := bucket("1/s")
	if err != nil {
		return nil, err
	}
	c, err := newClient(client, b)
	if err != nil {
		return nil, err
	}
	before, err := used(ctx, client)
	if err != nil {
		return nil, err
	}
	batch := make([]shaper.Job, 1000)
	for i := range batch {
		batch[i] = shaper.Job{Bucket: "bench", Payload: payload}
	}
	for range jobs / len(batch) {
		if _, err := c.Enqueue(ctx, batch...); err != nil {
			return nil, err
		}
	}
	after, err := used(ctx, client)
	if err != nil {
		return nil, err
	}
	each := float64(after-before)/jobs - payloadSize
	fmt.Printf("memory                 %.0f bytes a waiting job beyond its payload of %d (bar %d)\n", each, payloadSize, bar)
	if each > bar {
		return []string{fmt.Sprintf("a waiting job takes %.0f bytes beyond its payload, want %d", each, bar)}, nil
	}
	return nil, nil
}

func used(ctx context.Context, client redis.UniversalClient) (int64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		var n int64
		if _, err := fmt.Sscanf(line, "used_memory:%d", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("INFO memory does not tell used_memory: %q", info)
}
