package dispatcher

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// renewTimetables has the timetables of buckets reckoned anew before they end. Any number of dispatchers look, one round trip for all buckets
// and in a cluster one to each node; the first one that finds a timetable short writes the next.
func (d *Dispatcher) renewTimetables(ctx context.Context, drains []*drain) {
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	found := make([]*redis.SliceCmd, len(drains))
	lua.Spread(ctx, d.store.Redis, len(drains), func(i int) string { return drains[i].Keys.Conf() }, func(some []int) {
		pipe := d.store.Redis.Pipeline()
		for _, i := range some {
			found[i] = pipe.HMGet(ctx, drains[i].Keys.Conf(), store.FieldPlan, store.FieldTimetable)
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
	})
	for i, r := range drains {
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
