package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	disabledAtOnce  = 10          // disabled flows that one look finds
	disabledAtMost  = 200         // entries that one script makes dead letters of
	disabledTurn    = time.Second // of one patrol, after which it goes on
	disabledRecheck = 5 * time.Second
)

// emptyDisabled makes dead letters of the jobs that wait in disabled flows, for at most a while.
func (d *bucketLoop) emptyDisabled(ctx context.Context) {
	if !d.HasFlows() {
		return
	}
	for began := time.Now(); time.Since(began) < disabledTurn; {
		more, err := d.emptySomeDisabled(ctx, began)
		if err != nil && ctx.Err() == nil {
			d.log.ErrorContext(ctx, "disabled flows were not looked at", "error", err)
		}
		if !more || err != nil {
			return
		}
	}
	d.died.Store(true) // the next patrol goes on
}

// emptySomeDisabled looks at the disabled flows whose turn it is, and reports whether there was one.
func (d *bucketLoop) emptySomeDisabled(ctx context.Context, began time.Time) (some bool, err error) {
	latest := d.clock.latest(time.Now())
	if latest == 0 {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	flows, err := d.store.Redis.ZRangeByScore(within, d.Keys.Disabled(),
		&redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(latest, 10), Count: disabledAtOnce}).Result()
	if err != nil {
		return false, fmt.Errorf("bucket %q: list its disabled flows: %w", d.Name, err)
	}
	for _, flow := range flows {
		dead := int64(0)
		for left := int64(1); left > 0 && time.Since(began) < disabledTurn; {
			reply, err := d.shared.Run(ctx, lua.EmptyDisabled, d.Keys.Of(lua.EmptyDisabled, flow), d.Levels(), flow, disabledAtMost,
				store.PurgeBytes, disabledRecheck.Microseconds(), shaper.CauseFlowDisabled)
			if err != nil {
				return false, fmt.Errorf("bucket %q: %w", d.Name, err)
			}
			r := lua.NewReader(reply)
			dead += r.Int()
			if left = r.Int(); r.Err() != nil {
				return false, fmt.Errorf("bucket %q: script empty_disabled: %w", d.Name, r.Err())
			}
		}
		if dead > 0 {
			d.someDied(dead)
			d.store.Metrics.CountGivenUp(d.Name, shaper.CauseFlowDisabled, dead)
			d.log.WarnContext(ctx, "jobs of a disabled flow are dead", append(d.flowLabel(flow), "count", dead, "cause", shaper.CauseFlowDisabled)...)
		}
	}
	return len(flows) > 0, nil
}
