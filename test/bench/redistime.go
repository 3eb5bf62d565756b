package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// busy is a rate that no dispatcher reaches.
const busy = 50_000

// shape is a kind of bucket with jobs in it.
type shape struct {
	name          string
	bucket        shaper.Bucket
	groups, flows int // flows in all
	goal          float64
}

// The goals are ratios to the basket. The engine before part 5 needed, in baskets a departure:
// see each. Its goals there were 0.55, 0.45 and 0.5 of that.
var shapes = []shape{
	{name: "plain bucket", bucket: bucketOf("plain", busy), goal: 0},
	{name: "1,000 flows", bucket: withFlows(bucketOf("flows", busy)), flows: 1000, goal: 0},
	{name: "50,000 flows", bucket: withFlows(bucketOf("many", busy)), flows: 50_000, goal: 0},
	{name: "1,000 flows in 100 groups", bucket: withGroups(withFlows(bucketOf("groups", busy))), flows: 1000, groups: 100, goal: 0},
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
// worker does nothing, against a basket of plain commands on the same server. Redis has a
// core for itself, so that its clock runs only while it works.
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
	var scripts, baskets, ratios []float64
	for round := range rounds + 1 {
		departed := newCounter(1, each)
		run, err := newRun(store, 0, departed, s.bucket)
		if err != nil {
			return nil, err
		}
		before, err := timeOf(ctx, store, isScript)
		if err != nil {
			return nil, err
		}
		if err := during(ctx, run, func() error { return departed.wait(ctx) }); err != nil {
			return nil, err
		}
		after, err := timeOf(ctx, store, isScript)
		if err != nil {
			return nil, err
		}
		basket, err := basketTime(ctx, store, each)
		if err != nil {
			return nil, err
		}
		if err := put(int(departed.n.Load())); err != nil {
			return nil, err
		}
		if round == 0 {
			continue // caches fill, the dispatcher's first scripts are loaded
		}
		script := (after - before) / float64(departed.n.Load())
		scripts, baskets, ratios = append(scripts, script), append(baskets, basket), append(ratios, script/basket)
	}
	figures := fmt.Sprintf("scripts %5.1f µs a departure   basket %5.1f µs", median(scripts), median(baskets))
	return atMost(s.goal).judge("Redis time, "+s.name, figures, median(ratios)), nil
}

// timeOf is the time in microseconds that Redis has spent on commands.
func timeOf(ctx context.Context, store redis.UniversalClient, counts func(command string) bool) (float64, error) {
	info, err := store.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	total := 0.
	for line := range strings.Lines(info) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var calls, micros int64
		if _, err := fmt.Sscanf(stats, "%d,usec=%d", &calls, &micros); ok && err == nil && counts(name) {
			total += float64(micros)
		}
	}
	return total, nil
}

func isScript(command string) bool {
	return strings.HasPrefix(command, "eval") || strings.HasPrefix(command, "fcall")
}

// The basket is what a queue cannot do without for a job that comes, leaves and is done. It is the
// measure of the engine's cost and must never change with the engine.
const (
	basketBody = "basket:{b}:body"
	basketMeta = "basket:{b}:meta"
	basketList = "basket:{b}:list"
	basketLent = "basket:{b}:lent"
	basketSeen = "basket:{b}:seen"

	basketBatch = 100
	basketStock = 10_000
)

func isBasket(command string) bool {
	switch command {
	case "hset", "hget", "hdel", "rpush", "lpop", "zadd", "zrem":
		return true
	}
	return false
}

func basketID(i int) string { return fmt.Sprintf("0198c0de-0000-7000-8000-%012d", i) }

// stock gives the keys of the basket as many members as those of a bucket that is in use have.
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

// basketTime is the time in microseconds that Redis spends on the basket of one job, over n of them.
func basketTime(ctx context.Context, store redis.UniversalClient, n int) (float64, error) {
	before, err := timeOf(ctx, store, isBasket)
	if err != nil {
		return 0, err
	}
	for first := 0; first < n; first += basketBatch {
		if _, err := store.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := first; i < first+basketBatch; i++ {
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
			return 0, err
		}
	}
	after, err := timeOf(ctx, store, isBasket)
	if err != nil {
		return 0, err
	}
	return (after - before) / float64(n), store.ZRemRangeByRank(ctx, basketSeen, basketStock, -1).Err()
}
