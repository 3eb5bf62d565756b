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
	workers       int     // of the dispatcher; with 1 each claim has one departure. 0: the default
	units         shaper.Units
	baseline      string  // the shape without budgets
	more          float64 // baskets that it may cost beyond that one; 0: it is printed and no more
}

var shapes = []shape{
	{name: plain, bucket: bucketOf("plain", busy), before: 3.6, goal: .55},
	{name: "1,000 flows", bucket: withFlows(bucketOf("flows", busy)), flows: 1000, before: 9, goal: .45},
	{name: "50,000 flows", bucket: withFlows(bucketOf("many", busy)), flows: 50_000, before: 9, goal: .45},
	{name: "1,000 flows in 100 groups", bucket: withGroups(withFlows(bucketOf("groups", busy))), flows: 1000, groups: 100, before: 11.7, goal: .5},
	{name: "two budgets", bucket: withBudgets(bucketOf("budgets", busy)), units: tokens, baseline: plain, more: 4},
	{name: onePlain, bucket: bucketOf("plain-one", busy), workers: 1},
	{name: "two budgets, one departure a claim", bucket: withBudgets(bucketOf("budgets-one", busy)), units: tokens, workers: 1, baseline: onePlain},
}

const (
	plain    = "plain bucket"
	onePlain = "plain, one departure a claim"
)

// tokens is the reservation of each job of a bucket with budgets. It uses half of it.
var tokens = shaper.Units{shaper.UnitInput: 60, shaper.UnitOutput: 40}

// job returns the i-th job for the bucket: its flows take turns.
func (s shape) job(i int) shaper.Job {
	j := shaper.Job{Bucket: s.bucket.Name, Payload: payload, Units: s.units}
	if s.flows > 0 {
		j.Flow = fmt.Sprint("flow-", i%s.flows)
	}
	if s.groups > 0 {
		j.Group = fmt.Sprint("group-", i%s.groups)
	}
	return j
}

// redisTime measures what a departure costs Redis: the time of the scripts of a dispatcher whose
// worker does nothing, against a basket of plain commands on the same server. The two take turns,
// as the kinds of buckets do, and the median of the ratios counts: a disturbance of some seconds
// changes few of each. This process has one thread, so that Redis has a core for itself on two.
func redisTime(ctx context.Context, server *redistest.Server, rounds int) ([]string, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	store, err := connect(server)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := store.FlushDB(ctx).Err(); err != nil { // a server of our own
		return nil, err
	}
	queue, err := stock(ctx, store)
	if err != nil {
		return nil, err
	}
	var lines []*line
	for _, s := range shapes {
		l, err := newLine(ctx, store, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		lines = append(lines, l)
	}
	for round := range rounds + 1 {
		for _, l := range lines {
			if err := l.measure(ctx, queue, round > 0); err != nil { // before that, Redis loads the scripts
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	var missed []string
	for _, l := range lines {
		figures := fmt.Sprintf("scripts %5.1f µs a departure   basket %5.1f µs", median(l.scripts), median(l.baskets))
		missed = append(missed, atMost(l.goal*l.before).check("Redis time, "+l.name, figures, medianRatio(l.scripts, l.baskets))...)
	}
	for _, l := range lines {
		i := slices.IndexFunc(lines, func(other *line) bool { return other.name == l.baseline })
		if i < 0 {
			continue
		}
		more := medianRatio(l.scripts, l.baskets) - medianRatio(lines[i].scripts, lines[i].baskets)
		var most bar
		if l.more > 0 {
			most = atMost(l.more)
		}
		missed = append(missed, most.check("Baskets more, "+l.name, "than "+l.baseline, more)...)
	}
	return missed, nil
}

// line is the measurement of a shape: the time of scripts for a departure, and the time of a basket at the same time.
type line struct {
	shape
	store            redis.UniversalClient
	client           *client
	came             int
	scripts, baskets []float64
}

const departuresOfRound = 3000

// newLine fills the bucket. It never runs empty, and each of its flows always has a job.
func newLine(ctx context.Context, store redis.UniversalClient, s shape) (*line, error) {
	c, err := newClient(store, s.bucket)
	if err != nil {
		return nil, err
	}
	l := &line{shape: s, store: store, client: c}
	return l, l.put(ctx, max(2*departuresOfRound, s.flows)+2*departuresOfRound)
}

func (l *line) put(ctx context.Context, n int) error {
	first := l.came
	l.came += n
	return fill(ctx, l.client, n, func(i int) shaper.Job { return l.job(first + i) })
}

func (l *line) measure(ctx context.Context, queue *baskets, counts bool) error {
	departed := newCounter(1, departuresOfRound)
	run, err := newRun(l.store, l.workers, departed, l.bucket)
	if err != nil {
		return err
	}
	script, err := redisTimeOf(ctx, l.store, isScript, func() error {
		return during(ctx, run, func() error { return departed.wait(ctx) })
	})
	if err != nil {
		return err
	}
	basket, err := queue.time(ctx)
	if err != nil {
		return err
	}
	if counts {
		l.scripts, l.baskets = append(l.scripts, script/float64(departed.n.Load())), append(l.baskets, basket)
	}
	return l.put(ctx, int(departed.n.Load()))
}

// redisTimeOf returns the time in microseconds that Redis spends on commands of a kind while do runs. Redis measures commands by the clock, which
// includes time in which another process had its core. The CPU time of its thread is a second, upper bound.
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

// spentOn returns the time that Redis has spent on commands of a kind, and the CPU time of its thread, in microseconds.
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

// The basket holds the commands that any queue needs to enqueue, take and finish a job. It is the measure of the engine's cost and must never change
// with the engine.
const (
	basketBody   = "basket:{b}:body"
	basketMeta   = "basket:{b}:meta"
	basketList   = "basket:{b}:list"
	basketLeases = "basket:{b}:leases"
	basketSeen   = "basket:{b}:seen"

	basketStock = 10_000 // jobs that wait
	basketBatch = 100    // jobs of a transaction, which takes about as long as a script
	basketJobs  = 3000   // of a round
)

func isTransaction(command string) bool { return command == "exec" }

func basketID(i int) string { return fmt.Sprintf("0198c0de-0000-7000-8000-%012d", i) }

// baskets is a plain queue of basketStock jobs: a basket enqueues one job and takes the oldest. So each job is found in memory that was not read for a
// while, as in the engine.
type baskets struct {
	store redis.UniversalClient
	came  int
}

func stock(ctx context.Context, store redis.UniversalClient) (*baskets, error) {
	b := &baskets{store: store}
	_, err := store.Pipelined(ctx, func(p redis.Pipeliner) error {
		for ; b.came < basketStock; b.came++ {
			id := basketID(b.came)
			p.HSet(ctx, basketBody, id, payload)
			p.RPush(ctx, basketList, id)
			p.HSet(ctx, basketMeta, "self-dispatched-"+id, "1 1 0 0 0 0")
			p.ZAdd(ctx, basketLeases, redis.Z{Score: float64(b.came), Member: "self-dispatched-" + id})
			p.ZAdd(ctx, basketSeen, redis.Z{Score: float64(b.came), Member: "seen-" + id})
		}
		return nil
	})
	return b, err
}

// time returns the time in microseconds that Redis spends on a basket, in a round of some thousands.
func (b *baskets) time(ctx context.Context) (float64, error) {
	micros, err := redisTimeOf(ctx, b.store, isTransaction, func() error {
		for range basketJobs / basketBatch {
			if err := b.run(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return micros / basketJobs, b.store.ZRemRangeByRank(ctx, basketSeen, 0, basketJobs-1).Err()
}

func (b *baskets) run(ctx context.Context) error {
	_, err := b.store.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for range basketBatch {
			comes, leaves, now := basketID(b.came), basketID(b.came-basketStock), float64(time.Now().UnixMicro())
			b.came++
			p.HSet(ctx, basketBody, comes, payload)
			p.RPush(ctx, basketList, comes)
			p.LPop(ctx, basketList)
			p.HGet(ctx, basketBody, leaves)
			p.HSet(ctx, basketMeta, leaves, "1 1 0 0 0 0")
			p.ZAdd(ctx, basketLeases, redis.Z{Score: now, Member: leaves})
			p.ZRem(ctx, basketLeases, leaves)
			p.HDel(ctx, basketMeta, leaves)
			p.HDel(ctx, basketBody, leaves)
			p.ZAdd(ctx, basketSeen, redis.Z{Score: now, Member: leaves})
		}
		return nil
	})
	return err
}
