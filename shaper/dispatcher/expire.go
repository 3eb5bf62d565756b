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
	expireAtMost = 100         // jobs checked by one script
	expireTurn   = time.Second // of one patrol, which then continues elsewhere
	expireAgain  = 5 * time.Second
	siftAtMost   = 200 // entries of a list checked by one script
)

// expire turns waiting jobs that have expired into dead letters, for up to expireTurn, so that they free capacity for new jobs. A claim does the same
// when the turn of a job comes.
func (p *bucketPatrol) expire(ctx context.Context) {
	latest := p.clock.latest(time.Now())
	for began := time.Now(); latest != 0 && time.Since(began) < expireTurn; {
		at, more, err := p.expireSome(ctx, latest)
		if err != nil && ctx.Err() == nil {
			p.log.ErrorContext(ctx, "jobs that have expired were not looked at", "error", err)
		}
		if !more || err != nil {
			return
		}
		latest = min(latest, at) // a checked entry gets a later time, or is removed
	}
}

// expireSome checks the jobs that expire first, up to latest. It returns the time of Redis, and whether there may be more.
func (p *bucketPatrol) expireSome(ctx context.Context, latest int64) (now int64, more bool, err error) {
	ids, err := p.due(ctx, p.Keys.Expiries(), latest, expireAtMost)
	if err != nil || len(ids) == 0 {
		return 0, false, err
	}
	flows, jobs, err := p.jobsOf(ctx, ids)
	if err != nil {
		return 0, false, err
	}
	args := append([]any{p.Levels(), expireAgain.Microseconds(), store.ScriptBytes, expiredLast, len(flows.Names)}, flows.Args()...)
	var lookedAt, dead int64
	var sifted []string
	err = p.run(ctx, p.shared, lua.Expire, flows.Names, func(r *lua.Reader) {
		now, lookedAt = r.Int(), r.Int()
		for sifted = readTexts(r, r.Int()); r.Left() > 0; dead++ {
			p.foundDead(r.Int(), r.Text(), r.Text(), int(r.Int()))
		}
	}, append(args, jobs...)...)
	p.deaths.note(dead)
	if err != nil {
		return 0, false, err
	}
	for _, flow := range sifted {
		if err := p.sift(ctx, flow); err != nil {
			return 0, false, err
		}
	}
	return now, lookedAt > 0 && (len(ids) == expireAtMost || lookedAt < int64(len(ids))), nil
}

// due returns the first members of a sorted set that are due.
func (p *bucketPatrol) due(ctx context.Context, key string, latest, atMost int64) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.store.Timeout)
	defer cancel()
	found, err := p.store.Redis.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(latest, 10), Count: atMost}).Result()
	if err != nil {
		return nil, fmt.Errorf("bucket %q: look for what is due in %s: %w", p.Name, key, err)
	}
	return found, nil
}

// sift removes the ids of ended jobs from the lists of a flow.
func (p *bucketPatrol) sift(ctx context.Context, flow string) error {
	for list := 1; list < len(p.Keys.Places(flow)); list++ {
		for from, lookedAt := int64(0), int64(siftAtMost); lookedAt == siftAtMost; {
			err := p.run(ctx, p.shared, lua.Sift, []string{flow}, func(r *lua.Reader) {
				lookedAt = r.Int()
				from += lookedAt - r.Int()
			}, list, from, siftAtMost)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
