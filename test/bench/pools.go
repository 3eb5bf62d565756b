package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

const (
	poolWarmUp = 500 * time.Millisecond
	poolTime   = time.Second
	poolRounds = 3
)

// pools measures the cost of a pool, and whether its buckets get the whole pool.
func pools(ctx context.Context, server *redistest.Server) ([]string, error) {
	const goal = .98
	// Without the pool the buckets have its rate too, each an equal part.
	const many, total = 60, 10_000
	rates, err := alternate(poolRounds,
		func() (float64, error) { return poolRate(ctx, server, many, total/10, total) },
		func() (float64, error) { return poolRate(ctx, server, many, total/many, 0) })
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("a pool of %d/s, %d buckets", total, many)
	figures := fmt.Sprintf("%5.0f/s   without the pool %5.0f/s", median(rates[0]), median(rates[1]))
	missed := atLeast(goal).check(name, figures, medianRatio(rates[0], rates[1]))

	for _, p := range []struct{ buckets, each, all int64 }{{2, 300, 500}, {60, 40, 2000}} {
		rates, err := alternate(poolRounds, func() (float64, error) { return poolRate(ctx, server, p.buckets, p.each, p.all) })
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("a pool of %d/s, %d buckets of %d/s", p.all, p.buckets, p.each)
		rate := median(rates[0])
		missed = append(missed, atLeast(goal).check(name, fmt.Sprintf("%5.0f/s", rate), rate/float64(p.all))...)
	}
	return missed, nil
}

// poolRate returns the departures a second of a number of busy buckets, each with a rate, in a pool with a rate for all of them; 0 is without a pool.
func poolRate(ctx context.Context, server *redistest.Server, buckets, each, all int64) (float64, error) {
	store, err := connect(server)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	if err := store.FlushDB(ctx).Err(); err != nil { // a server of our own
		return 0, err
	}
	settings := make([]shaper.Bucket, buckets)
	for i := range settings {
		settings[i] = bucketOf(fmt.Sprint("bucket-", i), each)
		if all > 0 {
			settings[i] = inPool(settings[i], all)
		}
	}
	c, err := newClient(store, settings...)
	if err != nil {
		return 0, err
	}
	// None runs empty, though some of a pool may get more than their part.
	jobs := each
	if all > 0 {
		jobs = min(each, 4*all/buckets)
	}
	jobs = int64(math.Ceil(float64(jobs) * 2 * (poolWarmUp + poolTime).Seconds()))
	for i := range settings {
		name := settings[i].Name
		if err := fill(ctx, c, int(jobs), func(int) shaper.Job { return shaper.Job{Bucket: name, Payload: payload} }); err != nil {
			return 0, err
		}
	}
	departed := newCounter(0, math.MaxInt64)
	run, err := newRun(store, 0, departed, settings...)
	if err != nil {
		return 0, err
	}
	var rate float64
	err = during(ctx, run, func() (err error) {
		rate, err = departed.within(ctx, poolWarmUp, poolTime)
		return err
	})
	return rate, err
}
