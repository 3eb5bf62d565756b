package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
)

// kinds are the algorithms, each with a limit that these callers do not reach:
// a refusal may cost less than a decision.
var kinds = []admission.Limit{
	{Name: "token-bucket", Algorithm: admission.TokenBucket, Limit: aMillion, Burst: 1_000_000},
	// A log holds 100,000 at most.
	{Name: "log", Algorithm: admission.SlidingWindowLog, Limit: admission.Rate{Count: 100_000, Per: 100 * time.Millisecond, Unit: admission.UnitRequests}},
	{Name: "counter", Algorithm: admission.SlidingWindowCounter, Limit: aMillion},
	{Name: "counter-10", Algorithm: admission.SlidingWindowCounter, Limit: aMillion, Precision: 10},
	{Name: "fixed", Algorithm: admission.FixedWindow, Limit: aMillion},
}

var aMillion = admission.Rate{Count: 1_000_000, Per: time.Second, Unit: admission.UnitRequests}

// describe names the algorithm of a kind, with its setting.
func describe(l admission.Limit) string {
	if l.Precision > 1 {
		return fmt.Sprintf("%s, %d", l.Algorithm, l.Precision)
	}
	return string(l.Algorithm)
}

func limiter(client redis.UniversalClient) (*admission.Limiter, error) {
	return admission.NewLimiter(admission.LimiterConfig{Redis: client, Timeout: 5 * time.Second})
}

// crowd is the number of callers, and whether each checks a key of its own, so that nothing can be decided together. A bar of 0 is none. On one thread
// no thread of Go has to be woken, which on a virtual machine takes longer than Redis needs for a batch. On one CPU, no CPU has to be woken either: a
// lone caller and Redis wait for each other in turn, and that decides otherwise.
type crowd struct {
	callers      int
	own          bool
	oneThread    bool
	oneProcessor bool
	bar          float64
}

var (
	alone     = crowd{callers: 1, oneProcessor: true} // no bar: machines differ in what waking Redis costs
	few       = crowd{callers: 8}
	together  = crowd{callers: 64, bar: 4}
	oneThread = crowd{callers: 64, oneThread: true}
	apart     = crowd{callers: 64, own: true}
)

// names returns the keys that the callers check, a caller one of them: one for all, or one for each.
func (c crowd) names() []string {
	n := 1
	if c.own {
		n = c.callers
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("caller-", i)
	}
	return names
}

// decision checks a key once, and fails if it is refused.
type decision func(ctx context.Context, key string) error

func ourDecision(ours *admission.Limiter, limit admission.Limit) decision {
	return func(ctx context.Context, key string) error {
		d, err := ours.Allow(ctx, limit, key, 1)
		if err == nil && !d.Allowed {
			err = fmt.Errorf("%s refused: %+v", describe(limit), d)
		}
		return err
	}
}

func theirDecision(theirs *redis_rate.Limiter) decision {
	return func(ctx context.Context, key string) error {
		r, err := theirs.Allow(ctx, key, redis_rate.PerSecond(1_000_000))
		if err == nil && r.Allowed == 0 {
			err = fmt.Errorf("redis_rate refused: %+v", r)
		}
		return err
	}
}

// decisions compares decisions a second with go-redis/redis_rate.
func decisions(ctx context.Context, server *redistest.Server, c crowd, rounds int, length time.Duration) ([]string, error) {
	client, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ours, err := limiter(client)
	if err != nil {
		return nil, err
	}
	theirClient := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: max(c.callers, 10)})
	defer theirClient.Close()
	theirs := redis_rate.NewLimiter(theirClient)
	where := ""
	if c.oneThread {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		where = ", one thread"
	}
	if c.oneProcessor {
		undo, err := shareProcessor(ctx, client)
		if err != nil {
			fmt.Println("decisions: the processors are not shared:", err)
		} else {
			defer undo()
			where = ", one processor"
		}
	}
	// They take turns often: otherwise a difference of a few per cent is lost in the drift of a machine.
	rounds, length = 8*rounds, length/8
	var missed []string
	for _, limit := range kinds {
		names := c.names()
		rates := make([][]float64, 2)
		var ratios []float64
		both := []decision{ourDecision(ours, limit), theirDecision(theirs)}
		for range rounds {
			for i, call := range both {
				rate, err := hammer(ctx, c.callers, length, func(caller int) func(context.Context) error {
					key := names[caller%len(names)]
					return func(ctx context.Context) error { return call(ctx, key) }
				})
				if err != nil {
					return nil, err
				}
				rates[i] = append(rates[i], rate)
			}
			ratios = append(ratios, rates[0][len(rates[0])-1]/rates[1][len(rates[1])-1])
		}
		ratio := median(ratios)
		fmt.Printf("decisions, %2d callers, %2d keys%s  %-26s tundish %7.0f/s   redis_rate %6.0f/s   ratio %5.2f (%s)\n",
			c.callers, len(names), where, describe(limit), median(rates[0]), median(rates[1]), ratio, verdict(c.bar))
		if ratio < c.bar {
			missed = append(missed, fmt.Sprintf("%s with %d callers is %.2f times redis_rate, want %.2f", describe(limit), c.callers, ratio, c.bar))
		}
	}
	return missed, nil
}

// shareProcessor is onOneProcessor for the Redis of a client.
func shareProcessor(ctx context.Context, client redis.UniversalClient) (undo func(), err error) {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(info) {
		var pid int
		if _, err := fmt.Sscanf(line, "process_id:%d", &pid); err == nil {
			return onOneProcessor(pid)
		}
	}
	return nil, fmt.Errorf("INFO server does not tell the process of Redis: %q", info)
}

// verdict names the bar of a ratio.
func verdict(bar float64) string {
	if bar == 0 {
		return "no bar"
	}
	return fmt.Sprintf("bar %g", bar)
}

// keys measures the Redis memory of a key, and the Redis time of a decision with
// few and with many keys.
func keys(ctx context.Context, server *redistest.Server) ([]string, error) {
	client, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ours, err := limiter(client)
	if err != nil {
		return nil, err
	}
	theirs := redis_rate.NewLimiter(client)
	if _, err := theirs.Allow(ctx, "key-of-22-characters--", redis_rate.PerHour(100)); err != nil {
		return nil, err
	}
	theirBytes, err := client.MemoryUsage(ctx, "rate:key-of-22-characters--").Result()
	if err != nil {
		return nil, err
	}
	fmt.Printf("memory of a key         %-26s %7d bytes\n", "redis_rate", theirBytes)
	for _, limit := range kinds {
		limit.Limit = admission.Rate{Count: 100, Per: time.Hour, Unit: admission.UnitRequests}
		limit.Burst = 0
		key := "key-of-22-characters--"
		for range 100 {
			if _, err := ours.Allow(ctx, limit, key, 1); err != nil {
				return nil, err
			}
		}
		found, err := client.Keys(ctx, "tundish:{l:"+limit.Name+"}:*"+key).Result()
		if err != nil {
			return nil, fmt.Errorf("%s: look for its keys: %w", describe(limit), err)
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%s: keys %v, want one", describe(limit), found)
		}
		bytes, err := client.MemoryUsage(ctx, found[0], 0).Result()
		if err != nil {
			return nil, err
		}
		fmt.Printf("memory of a key         %-26s %7d bytes with 100/h used up\n", describe(limit), bytes)
	}
	for _, limit := range kinds {
		line := fmt.Sprintf("cost of a decision      %-26s", describe(limit))
		for _, n := range []int{1, 10, 1_000_000} {
			micros, err := cost(ctx, client, ours, limit, n)
			if err != nil {
				return nil, err
			}
			line += fmt.Sprintf("   %d keys %.1f µs", n, micros)
		}
		fmt.Println(line + " of Redis")
	}
	return nil, nil
}

// cost returns the time that Redis spends on one decision while the limit has n keys. Each decision uses one of them at random.
func cost(ctx context.Context, client redis.UniversalClient, ours *admission.Limiter, limit admission.Limit, n int) (float64, error) {
	if err := client.FlushDB(ctx).Err(); err != nil { // a server of our own
		return 0, err
	}
	// A window in which no key is used up or forgotten.
	limit.Limit, limit.Burst = admission.Rate{Count: 10_000, Per: time.Hour, Unit: admission.UnitRequests}, 0
	const callers, asked = 256, 20_000
	each := func(total int, key func(i int) string) error {
		return inParallel(callers, total, func(i int) error {
			_, err := ours.Allow(ctx, limit, key(i), 1)
			return err
		})
	}
	name := func(i int) string { return fmt.Sprint("key-", i) }
	if err := each(n, name); err != nil {
		return 0, err
	}
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	total := min(asked, 9_000*n) // fewer than a key's limit
	if err := each(total, func(int) string { return name(rand.IntN(n)) }); err != nil {
		return 0, err
	}
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		var calls, micros int64
		if _, err := fmt.Sscanf(line, "cmdstat_fcall:calls=%d,usec=%d", &calls, &micros); err == nil {
			return float64(micros) / float64(total), nil
		}
	}
	return 0, fmt.Errorf("INFO commandstats does not tell of fcall: %q", info)
}
