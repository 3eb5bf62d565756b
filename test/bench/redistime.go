package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// busy is a rate that no dispatcher reaches.
const busy = 200_000

// shape is a kind of bucket with jobs in it.
type shape struct {
	name          string
	bucket        shaper.Bucket
	groups, flows int     // flows in all
	before        float64 // baskets that a departure cost Redis before the engine was rewritten
	goal          float64 // the part of that which it may cost since; 0: none
}

var shapes = []shape{
	{name: "plain bucket", bucket: bucketOf("plain", busy), before: 5, goal: .55},
	{name: "1,000 flows", bucket: withFlows(bucketOf("flows", busy)), flows: 1000, before: 11.4, goal: .45},
	{name: "50,000 flows", bucket: withFlows(bucketOf("many", busy)), flows: 50_000, before: 12.4, goal: .45},
	{name: "1,000 flows in 100 groups", bucket: withGroups(withFlows(bucketOf("groups", busy))), flows: 1000, groups: 100, before: 15, goal: .5},
}

// job is the i-th job for the bucket: its flows take turns.
func (s shape) job(i int) shaper.Job {
	j := shaper.Job{Bucket: s.bucket.Name, Payload: payload}
	if s.flows > 0 {
		j.Flow = fmt.Sprint("flow-", i%s.flows)
	}
	if s.groups > 0 {
		j.Group = fmt.Sprint("group-", i%s.groups)
	}
	return j
}

// redisTime measures what a departure costs Redis: the time of the scripts of a dispatcher whose
// worker does nothing, against a basket of plain commands on the same server. The two take turns
// in rounds, and the fastest round of each counts: a disturbance makes a round longer. This
// process has one thread, so that Redis has a core for itself on two.
func redisTime(ctx context.Context, server *redistest.Server, rounds int) ([]string, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var missed []string
	for _, s := range shapes {
		m, err := s.redisTime(ctx, server, rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		missed = append(missed, m...)
	}
	return missed, nil
}

func (s shape) redisTime(ctx context.Context, server *redistest.Server, rounds int) ([]string, error) {
	const each = 3000
	store, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := store.FlushDB(ctx).Err(); err != nil { // a server of our own
		return nil, err
	}
	c, err := newClient(store, s.bucket)
	if err != nil {
		return nil, err
	}
	if err := stock(ctx, store); err != nil {
		return nil, err
	}
	// The bucket never runs empty, and each of its flows always has a job.
	enqueued := 0
	put := func(n int) error {
		first := enqueued
		enqueued += n
		return fill(ctx, c, n, func(i int) shaper.Job { return s.job(first + i) })
	}
	if err := put(max(2*each, s.flows) + 2*each); err != nil {
		return nil, err
	}
	var scripts, baskets []float64
	for round := range rounds + 1 {
		departed := newCounter(1, each)
		run, err := newRun(store, 0, departed, s.bucket)
		if err != nil {
			return nil, err
		}
		script, err := redisTimeOf(ctx, store, isScript, func() error {
			return during(ctx, run, func() error { return departed.wait(ctx) })
		})
		if err != nil {
			return nil, err
		}
		basket, err := basketTime(ctx, store)
		if err != nil {
			return nil, err
		}
		if err := put(int(departed.n.Load())); err != nil {
			return nil, err
		}
		if round == 0 {
			continue // Redis loads the scripts
		}
		scripts, baskets = append(scripts, script/float64(departed.n.Load())), append(baskets, basket)
	}
	script, basket := slices.Min(scripts), slices.Min(baskets)
	figures := fmt.Sprintf("scripts %5.1f µs a departure   basket %5.1f µs", script, basket)
	return atMost(s.goal*s.before).judge("Redis time, "+s.name, figures, script/basket), nil
}

// redisTimeOf is the time in microseconds that Redis spends on commands of a kind while do runs. Redis measures
// them by the clock, so that it counts time in which another process had its core. It never spends
// more on commands than the processor time of its thread, which is the second bound.
func redisTimeOf(ctx context.Context, store redis.UniversalClient, counts func(command string) bool, do func() error) (float64, error) {
	commands, processor, err := spentOn(ctx, store, counts)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	commandsAfter, processorAfter, err := spentOn(ctx, store, counts)
	return min(commandsAfter-commands, processorAfter-processor), err
}

// spentOn is what Redis has spent on commands of a kind, and its thread in all, in microseconds.
func spentOn(ctx context.Context, store redis.UniversalClient, counts func(command string) bool) (commands, processor float64, err error) {
	info, err := store.Info(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		name, stats, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var calls, micros int64
		if _, err := fmt.Sscanf(stats, "%d,usec=%d", &calls, &micros); err == nil && counts(name) {
			commands += float64(micros)
		}
		for _, kind := range []string{"sys", "user"} {
			var seconds float64
			if _, err := fmt.Sscanf(line, "used_cpu_"+kind+"_main_thread:%f", &seconds); err == nil {
				processor += seconds * 1e6
			}
		}
	}
	return commands, processor, nil
}

func isScript(command string) bool {
	return strings.HasPrefix(command, "eval") || strings.HasPrefix(command, "fcall")
}

// The basket holds the commands that any queue needs for a job that comes, leaves and is done. It is the
// measure of the engine's cost and must never change with the engine.
const (
	basketBody = "basket:{b}:body"
	basketMeta = "basket:{b}:meta"
	basketList = "basket:{b}:list"
	basketLent = "basket:{b}:lent"
	basketSeen = "basket:{b}:seen"

	basketStock   = 10_000 // jobs that are there before
	basketBatch   = 100    // jobs of a transaction, which takes about as long as a script
	basketBatches = 5
	basketTries   = 12
)

func isTransaction(command string) bool { return command == "exec" }

func basketID(i int) string { return fmt.Sprintf("0198c0de-0000-7000-8000-%012d", i) }

// stock gives the keys of the basket as many members as a bucket in use has.
func stock(ctx context.Context, store redis.UniversalClient) error {
	_, err := store.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range basketStock {
			id := "old-" + basketID(i)
			p.HSet(ctx, basketBody, id, payload)
			p.HSet(ctx, basketMeta, id, "1 1 0 0 0 0")
			p.RPush(ctx, basketList, id)
			p.ZAdd(ctx, basketLent, redis.Z{Score: float64(i), Member: id})
			p.ZAdd(ctx, basketSeen, redis.Z{Score: float64(i), Member: id})
		}
		return nil
	})
	return err
}

// basketTime is the time in microseconds that Redis spends on the basket of one job, in the fastest of some tries.
func basketTime(ctx context.Context, store redis.UniversalClient) (float64, error) {
	var tries []float64
	for range basketTries {
		micros, err := redisTimeOf(ctx, store, isTransaction, func() error { return runBaskets(ctx, store) })
		if err != nil {
			return 0, err
		}
		tries = append(tries, micros/(basketBatches*basketBatch))
	}
	return slices.Min(tries), store.ZRemRangeByRank(ctx, basketSeen, basketStock, -1).Err()
}

func runBaskets(ctx context.Context, store redis.UniversalClient) error {
	for range basketBatches {
		if _, err := store.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for i := range basketBatch {
				id, now := basketID(i), float64(time.Now().UnixMicro())
				p.HSet(ctx, basketBody, id, payload)
				p.RPush(ctx, basketList, id)
				p.LPop(ctx, basketList)
				p.HGet(ctx, basketBody, id)
				p.HSet(ctx, basketMeta, id, "1 1 0 0 0 0")
				p.ZAdd(ctx, basketLent, redis.Z{Score: now, Member: id})
				p.ZRem(ctx, basketLent, id)
				p.HDel(ctx, basketMeta, id)
				p.HDel(ctx, basketBody, id)
				p.ZAdd(ctx, basketSeen, redis.Z{Score: now, Member: id})
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
