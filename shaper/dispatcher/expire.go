package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	expireAtMost = 100         // jobs that one script looks at
	expireTurn   = time.Second // of one patrol, after which it goes on
	expireAgain  = 5 * time.Second
	siftAtMost   = 200 // entries of a list that one script looks at
)

// expire makes dead letters of waiting jobs that have expired, for at most a while, so that they take no place from new ones. A claim
// does the same when the turn of a job comes.
func (d *bucketLoop) expire(ctx context.Context) {
	latest := d.clock.latest(time.Now())
	for began := time.Now(); latest != 0 && time.Since(began) < expireTurn; {
		at, more, err := d.expireSome(ctx, latest)
		if err != nil && ctx.Err() == nil {
			d.log.ErrorContext(ctx, "jobs that have expired were not looked at", "error", err)
		}
		if !more || err != nil {
			return
		}
		latest = min(latest, at) // an entry that is looked at gets a later time, or goes
	}
}

// expireSome looks at the jobs that expire first, until latest. It returns the time of Redis, and whether there may be more.
func (d *bucketLoop) expireSome(ctx context.Context, latest int64) (now int64, more bool, err error) {
	within, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	ids, err := d.store.Redis.ZRangeByScore(within, d.Keys.Expiries(),
		&redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(latest, 10), Count: expireAtMost}).Result()
	if err != nil {
		return 0, false, fmt.Errorf("bucket %q: list its jobs that expire: %w", d.Name, err)
	}
	if len(ids) == 0 {
		return 0, false, nil
	}
	names, err := d.shared.FlowsOf(ctx, d.Bucket, ids...)
	if err != nil {
		return 0, false, err
	}
	var flows store.FlowSet
	var jobs []any
	for i, id := range ids {
		jobs = append(jobs, id, flows.Number(names[i]))
	}
	args := append([]any{d.Levels(), expireAgain.Microseconds(), store.PurgeBytes, expiredLast, len(flows.Names)}, flows.Args()...)
	reply, err := d.shared.Run(ctx, lua.Expire, d.Keys.Of(lua.Expire, flows.Names...), append(args, jobs...)...)
	if err != nil {
		return 0, false, fmt.Errorf("bucket %q: %w", d.Name, err)
	}
	r := lua.NewReader(reply)
	now, lookedAt := r.Int(), r.Int()
	sifted := readTexts(r, r.Int())
	dead := int64(0)
	for r.Left() > 0 {
		d.foundDead(r.Int(), r.Text(), r.Text(), int(r.Int()))
		dead++
	}
	d.someDied(dead)
	if r.Err() != nil {
		return 0, false, fmt.Errorf("bucket %q: script expire: %w", d.Name, r.Err())
	}
	for _, flow := range sifted {
		if err := d.sift(ctx, flow); err != nil {
			return 0, false, err
		}
	}
	return now, lookedAt > 0 && (len(ids) == expireAtMost || lookedAt < int64(len(ids))), nil
}

// sift takes the ids of jobs that ended out of the lists of a flow.
func (d *bucketLoop) sift(ctx context.Context, flow string) error {
	keys := d.Keys.Of(lua.Sift, flow)
	for list := 1; list < len(d.Keys.Places(flow)); list++ {
		for from, lookedAt := int64(0), int64(siftAtMost); lookedAt == siftAtMost; {
			reply, err := d.shared.Run(ctx, lua.Sift, keys, list, from, siftAtMost)
			if err != nil {
				return fmt.Errorf("bucket %q: %w", d.Name, err)
			}
			r := lua.NewReader(reply)
			lookedAt = r.Int()
			if from += lookedAt - r.Int(); r.Err() != nil {
				return fmt.Errorf("bucket %q: script sift: %w", d.Name, r.Err())
			}
		}
	}
	return nil
}
