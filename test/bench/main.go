// Command bench compares Tundish with asynq and redis_rate, all on the same Redis in the same
// run, and prints ratios. It measures the figures of docs/measurements.md:
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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
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
		{"engine", func() ([]string, error) { return redisTime(ctx, server, *rounds) }},
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

// hammer has each caller make calls, one after the other, and returns how many
// there were a second.
func hammer(ctx context.Context, callers int, length time.Duration, of func(caller int) func(context.Context) error) (float64, error) {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		call := of(caller)
		all.Go(func() {
			for time.Since(start) < length && failed.Load() == nil {
				if err := call(ctx); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if p := failed.Load(); p != nil {
		return 0, *p
	}
	return float64(done.Load()) / time.Since(start).Seconds(), nil
}

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

// inParallel makes n calls from a number of callers, and stops at the first error.
func inParallel(callers, n int, call func(i int) error) error {
	var failed atomic.Pointer[error]
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := call(i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
