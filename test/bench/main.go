// Command bench compares Tundish with asynq and redis_rate, all on the same Redis in the same
// run, and prints ratios. It measures the figures of docs/benchmarks.md:
//
//   - jobs a second into a bucket with one token bucket and a bound. There are 64 and 512
//     callers and payloads of 256 bytes; asynq's Client.Enqueue is the measure
//   - bytes of Redis memory for a waiting job beyond its payload
//   - the time from enqueue to arrival at an idle receiver, against asynq with
//     its default and with its fastest polling
//   - the time that Redis spends on a departure, against a basket of plain commands
//   - departures of one dispatcher with a worker that does nothing, against asynq
//   - jobs a second by calls of a hundred: into a hundred flows, and by HTTP
//   - the cost of a pool, and whether its buckets get the whole pool
//   - webhooks a second to a receiver on this machine, against a bare http.Client and asynq
//   - departures of 1,000, 100,000 and 1,000,000 flows at 20,000/s by four dispatchers:
//     their evenness, and the cost of one
//   - decisions a second of each algorithm, against go-redis/redis_rate: one caller and 64,
//     with one key, with a key each, and on one thread of Go
//   - bytes of a limit's key, and the cost of a decision to Redis with 1, 10 and a million keys
//
// The two compared take turns in rounds, so that a machine whose speed drifts
// treats both alike. It exits 1 when a bar is missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const payloadSize = 256

// payload is a JSON string of that size.
var payload = []byte(`"` + strings.Repeat("x", payloadSize-2) + `"`)

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	seconds := flags.Duration("for", time.Second, "length of one round")
	rounds := flags.Int("rounds", 7, "rounds of each kind")
	only := flags.String("only", "", "one of enqueue, memory, latency, engine, deliver, flows, decisions, keys; all of them if it is empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := redistest.Run("")
	if err != nil {
		return err
	}
	defer server.Close()
	var missed []string
	for _, step := range []struct {
		kind string
		run  func() ([]string, error)
	}{
		{"enqueue", func() ([]string, error) { return enqueue(ctx, server, 64, 1.7, *rounds, *seconds) }},
		{"enqueue", func() ([]string, error) { return enqueue(ctx, server, 512, 2.7, *rounds, *seconds) }},
		{"memory", func() ([]string, error) { return memory(ctx, server) }},
		{"latency", func() ([]string, error) { return latency(ctx, server) }},
		{"engine", func() ([]string, error) { return redisTime(ctx, server, 2**rounds) }},
		{"engine", func() ([]string, error) { return departures(ctx, server, *rounds) }},
		{"engine", func() ([]string, error) { return batches(ctx, server, *rounds, *seconds) }},
		{"engine", func() ([]string, error) { return pools(ctx, server) }},
		{"deliver", func() ([]string, error) { return deliveries(ctx, server, *rounds) }},
		{"flows", func() ([]string, error) { return flows(ctx) }},
		{"decisions", func() ([]string, error) { return decisions(ctx, server, alone, *rounds, *seconds) }},
		{"decisions", func() ([]string, error) { return decisions(ctx, server, few, *rounds, *seconds) }},
		{"decisions", func() ([]string, error) { return decisions(ctx, server, together, *rounds, *seconds) }},
		{"decisions", func() ([]string, error) { return decisions(ctx, server, oneThread, *rounds, *seconds) }},
		{"decisions", func() ([]string, error) { return decisions(ctx, server, apart, *rounds, *seconds) }},
		{"keys", func() ([]string, error) { return keys(ctx, server) }},
	} {
		if *only != "" && *only != step.kind {
			continue
		}
		m, err := step.run()
		if err != nil {
			return err
		}
		missed = append(missed, m...)
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
