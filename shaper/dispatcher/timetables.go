package dispatcher

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// renewTimetables has the timetables of buckets reckoned anew before they end, and logs that a finish will not be met. Any number of
// dispatchers look, one round trip for all buckets with a plan and in a cluster one to each node; the first one that finds a timetable
// short writes the next.
func (d *Dispatcher) renewTimetables(ctx context.Context, all []*bucketLoop) {
	var loops []*bucketLoop
	for _, r := range all {
		if r.HasPlan() {
			loops = append(loops, r)
		} else {
			r.tellLate(ctx, shaper.NotLate)
		}
	}
	if len(loops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	found, windows := make([]*redis.SliceCmd, len(loops)), make([]*redis.StringCmd, len(loops))
	lua.Spread(ctx, d.store.Redis, len(loops), func(i int) string { return loops[i].Keys.Conf() }, func(some []int) {
		pipe := d.store.Redis.Pipeline()
		for _, i := range some {
			found[i] = pipe.HMGet(ctx, loops[i].Keys.Conf(), store.FieldPlan, store.FieldTimetable)
			windows[i] = pipe.HGet(ctx, loops[i].Keys.Pace(), "window")
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
	})
	for i, r := range loops {
		if windows[i].Err() == nil {
			r.tellLate(ctx, codec.LateOf(windows[i].Val()))
		}
		now := r.clock.latest(time.Now())
		values := found[i].Val()
		if found[i].Err() != nil || len(values) != 2 || now == 0 { // the next look sees it
			continue
		}
		plan, _ := values[0].(string)
		text, _ := values[1].(string)
		if err := d.store.RenewTimetable(ctx, r.Bucket, plan, text, now); err != nil && ctx.Err() == nil {
			r.log.ErrorContext(ctx, "the timetable of a bucket was not renewed: the bucket stays closed once it ends", "error", err)
		}
	}
}

// tellLate logs once that a finish will not be met, and once that it will be after all.
func (d *bucketLoop) tellLate(ctx context.Context, late shaper.Late) {
	if d.late == late {
		return
	}
	d.late = late
	switch late {
	case shaper.LateRate:
		d.log.WarnContext(ctx, "jobs will be left at the finish: the rate that is needed is above the one that is allowed", "finish_by", d.finishBy())
	case shaper.LateBehind:
		d.log.WarnContext(ctx, "jobs will be left at the finish: fewer departed than were to; a quota, flows, a pool, a downstream or too few workers hold them back", "finish_by", d.finishBy())
	default:
		d.log.InfoContext(ctx, "no finish is late any more", "finish_by", d.finishBy())
	}
}

// finishBy is what the configuration here says; "" where the plan in force is that of another one.
func (d *bucketLoop) finishBy() string {
	if plan := d.Settings.Load().Drain; plan != nil {
		return plan.FinishBy
	}
	return ""
}

// keepWithin keeps a job within its window, whatever this process does not know of the clock of Redis: it leaves no earlier than at the
// latest instant at which the window can open, and its permit is void from the earliest one on at which the window can end. The times are
// those of a claim; 0: there is none.
func (d *bucketLoop) keepWithin(job *leased, opening, closes int64) {
	if opening > 0 {
		if _, latest := d.clock.localBounds(opening); job.slot.Before(latest) {
			job.slot = latest
		}
	}
	if closes > 0 {
		job.closes, _ = d.clock.localBounds(closes)
	}
}
