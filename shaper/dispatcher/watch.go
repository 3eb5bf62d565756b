package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// watchAll is how often watch checks all buckets: every third round. The other rounds check only buckets with a wake-up since. A process that changes
// effective settings sends one, except for a pause, which is only logged here.
const watchAll = 3

// watchSettings checks the effective settings of changed buckets every 10 s, and of all buckets every 30 s, until ctx ends. It also renews timetables
// that end, and every 30 s checks finishes.
func (d *Dispatcher) watchSettings(ctx context.Context) {
	wait := patrolInterval
	for round := 0; sleep(ctx, wait); round++ {
		wait = store.WatchEvery
		loops := *d.loops.Load()
		d.watch(ctx, loops, round%watchAll == 0 || !d.listens.Load())
		d.renewTimetables(ctx, loops)
		if round%watchAll == 0 {
			d.foresee(ctx, loops)
		}
	}
}

// watch checks the effective settings. If a read-only process, or one of lower precedence, has replaced a bucket's settings, the bucket's loop writes
// its own again with its next claim.
func (d *Dispatcher) watch(ctx context.Context, loops []*bucketLoop, all bool) {
	byBucket := make(map[*store.Bucket]*bucketLoop, len(loops))
	for _, loop := range loops {
		byBucket[loop.Bucket] = loop
	}
	again := d.store.WatchSome(ctx, func(b *store.Bucket) bool {
		loop := byBucket[b]
		return loop == nil || loop.news.Swap(false) || all
	})
	for _, b := range again {
		if loop := byBucket[b]; loop != nil {
			loop.claims.wake.put()
		}
	}
}

// renewTimetables computes the timetables of buckets again before they end, and reports the ends of windows to hooks. It takes one round trip for all
// buckets that have a plan or had a window (in a cluster one per node). A bucket whose plan was removed may have an open window still to be reported.
// Any number of dispatchers check; the first one that finds a timetable short writes the next.
func (d *Dispatcher) renewTimetables(ctx context.Context, loops []*bucketLoop) {
	planned := those(loops, func(l *bucketLoop) bool { return l.HasPlan() || !l.noWindow })
	found, windows, tallies := make([]*redis.SliceCmd, len(planned)), make([]*redis.StringCmd, len(planned)), make([]*redis.StringCmd, len(planned))
	pipelined(ctx, d.store, len(planned), func(i int) string { return planned[i].Keys.Conf() }, func(pipe redis.Pipeliner, i int) {
		found[i] = pipe.HMGet(ctx, planned[i].Keys.Conf(), store.FieldPlan, store.FieldTimetable, store.FieldEvents)
		windows[i], tallies[i] = pipe.HGet(ctx, planned[i].Keys.Pace(), "window"), pipe.HGet(ctx, planned[i].Keys.Count(), "window")
	})
	for i, l := range planned {
		now := l.clock.latest(time.Now())
		values := found[i].Val()
		if found[i].Err() != nil || len(values) != 3 || now == 0 { // the next round tries again
			continue
		}
		plan, _ := values[0].(string)
		text, _ := values[1].(string)
		if err := d.store.RenewTimetable(ctx, l.Bucket, plan, text, now); err != nil && ctx.Err() == nil {
			l.log.ErrorContext(ctx, "the timetable of a bucket was not renewed: the bucket stays closed once it ends", "error", err)
		}
		events, _ := values[2].(string)
		l.noWindow = tallies[i].Val() == "" && errors.Is(tallies[i].Err(), redis.Nil)
		if err := d.store.CloseWindows(ctx, l.Bucket, plan, events, tallies[i].Val(), codec.EmptiedOf(windows[i].Val()), now); err != nil && ctx.Err() == nil {
			l.log.ErrorContext(ctx, "the end of a drain window was not reported: it will be later", "error", err)
		}
	}
}

// keepWithin keeps a job within its window, despite the uncertainty of the clock of Redis. The job departs no earlier than the latest instant at
// which the window can open. Its permit is void from the earliest instant at which the window can end. The times come from a claim; 0: none.
func (c *bucketConn) keepWithin(job *leased, opening, closes int64) {
	if opening > 0 {
		if _, latest := c.clock.localBounds(opening); job.slot.Before(latest) {
			job.slot = latest
		}
	}
	if closes > 0 {
		job.closes, _ = c.clock.localBounds(closes)
	}
}
