package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

const (
	patrolInterval = 2 * time.Second       // a look at every bucket: three commands each, one pipeline
	auditInterval  = 30 * time.Second      // a chunk of the comparison of jobs and places
	sweepAtMost    = 200                   // leases taken back by one script
	sweepNames     = 1000                  // leases named by one that compares nothing: each costs two commands
	sweepMore      = 100                   // after so many taken back there may be more: the next sweep does not wait
	sweepSlack     = time.Second           // Redis time this far ahead of ours is a step
	lastChance     = shaper.MaxCrashes - 1 // crashes after which a job goes alone
	heartbeatBatch = 500
	purgeTurn      = time.Second // of a sweep that goes on with a purge
)

// patrol looks after all buckets until ctx ends. It wakes drains that missed a wake-up, returns jobs whose leases ended,
// and runs the sweeper. Every 2 s it sends three commands for an idle bucket and one for a busy bucket. One more command every
// 10 s finds changed settings, and the sweeper runs every 30 s.
func (d *Dispatcher) patrol(ctx context.Context) {
	more := false                                                                               // leases to take back: their buckets take turns of one chunk each, without a pause
	for round := 0; more || sleep(ctx, patrolInterval*9/10+rand.N(patrolInterval/5)); round++ { //nolint:gosec // jitter
		if ctx.Err() != nil {
			return
		}
		d.forgetGone()
		drains := d.drains.Load()
		more = false
		began := time.Now()
		sights := d.look(ctx, *drains)
		for i, drain := range *drains {
			if err := sights[i].err; err != nil {
				drain.outage.failed(ctx, err)
				continue
			}
			drain.outage.worked(ctx, began, d.cfg.Lease)
			if sights[i].waiting {
				drain.nudge()
			}
			more = drain.tend(ctx, &drain.sweeps, sights[i]) || more
			if len(*d.hooks.Load()) > 0 && len(drain.Settings.Load().Events) > 0 {
				drain.moveEvents(ctx)
			}
			if drain.died.Swap(false) || round%watchEvery == 0 {
				drain.trimDead(ctx, &drain.sweeps)
				drain.emptyDisabled(ctx)
			}
			if round%watchEvery == 0 {
				drain.trimResults(ctx)
			}
		}
		if round%watchEvery == 0 {
			d.watch(ctx, *drains)
			d.renewTimetables(ctx, *drains)
		}
	}
}

// sight is what a look at a bucket saw.
type sight struct {
	waiting  bool  // there is something to send, and the drain sleeps
	deadline int64 // of the lease that ends first, 0 none
	err      error // nothing was seen
}

// look looks at every bucket. In a cluster, buckets of a node that does not
// answer are not seen, and the others are.
func (d *Dispatcher) look(ctx context.Context, drains []*drain) []sight {
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	sights := make([]sight, len(drains))
	lua.Spread(ctx, d.store.Redis, len(drains), func(i int) string { return drains[i].Keys.Leases() }, func(some []int) {
		pipe := d.store.Redis.Pipeline()
		looks := make([]func() sight, len(some))
		for at, i := range some {
			looks[at] = drains[i].look(ctx, pipe)
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
		for at, i := range some {
			if sights[i] = looks[at](); sights[i].err != nil {
				sights[i].err = fmt.Errorf("look at bucket %q: %w", drains[i].Name, sights[i].err)
			}
		}
	})
	return sights
}

// look adds the commands of a look at one bucket to a pipeline, and returns what
// they saw when it has run.
func (d *drain) look(ctx context.Context, pipe redis.Pipeliner) func() sight {
	latest := d.clock.latest(time.Now())
	lease := pipe.ZRangeWithScores(ctx, d.Keys.Leases(), 0, 0)
	see := func(waiting bool, errs ...error) sight {
		s := sight{waiting: waiting, err: cmp.Or(append(errs, lease.Err())...)}
		if head := lease.Val(); len(head) > 0 {
			s.deadline = int64(head[0].Score)
		}
		return s
	}
	if !d.isSleeping() { // it looks for work by itself
		return func() sight { return see(false) }
	}
	if d.HasFlows() {
		head := pipe.ZRangeWithScores(ctx, d.Keys.Calendar(), 0, 0)
		offset := pipe.HMGet(ctx, d.Keys.Pace(), "offset") // of the calendar's clock
		return func() sight {
			ahead := int64(0)
			if values := offset.Val(); len(values) > 0 {
				text, _ := values[0].(string)
				ahead, _ = strconv.ParseInt(text, 10, 64) // 0 without one
			}
			waiting := len(head.Val()) > 0 && int64(head.Val()[0].Score) <= latest+ahead
			return see(waiting, head.Err(), offset.Err())
		}
	}
	places := d.Keys.Places("")
	lists := pipe.Exists(ctx, places[:len(places)-1]...)
	due := pipe.ZCount(ctx, d.Keys.Later(""), "-inf", strconv.FormatInt(latest, 10))
	return func() sight { return see(lists.Val() > 0 || due.Val() > 0, lists.Err(), due.Err()) }
}

// sweepWatch is what the sweeper of one bucket remembers.
type sweepWatch struct {
	nextAudit time.Time
	lastAudit time.Time // when the last chunk of one was looked at
	more      bool      // the last sweep took so many leases back that there may be more
	auditing  bool      // it goes on where these are; "" where that part is done
	cursor    string    // of the comparison of jobs and places
	flows     string    // of the flows
	oldest    oldestJob // at the head of a list, of the flows that this audit has been through
	lastWork  time.Time // the last sweep or look that Redis answered
	spare     time.Time // until then no lease is taken back
	pardon    time.Time // until then a lost lease is no crash
	missing   int64     // jobs without a place, as last seen
	deadFull  int       // how full of dead letters the bucket is, as last logged
}

// tend sweeps a bucket if a lease ran out or a comparison is due. It reports whether there may be more leases
// to take back, and is to be called again at once.
func (d *drain) tend(ctx context.Context, w *sweepWatch, s sight) (more bool) {
	now := time.Now()
	away := d.outage.lastLong()
	if gap := now.Sub(w.lastWork); !w.lastWork.IsZero() && gap > max(d.lease/2, 3*patrolInterval) {
		away = now
	}
	w.lastWork = now
	if !away.IsZero() {
		// Redis was away: leases ran out because nobody could extend them.
		// Their holders get one heartbeat, and nobody is called a crash.
		w.spare = later(w.spare, away.Add(d.heartbeatSeen()))
		w.pardon = later(w.pardon, away.Add(d.lease+2*patrolInterval))
	}
	latest := d.clock.latest(now)
	expired := s.deadline != 0 && (latest == 0 || s.deadline <= latest)
	audit := !now.Before(w.nextAudit) && now.Sub(w.lastAudit) >= patrolInterval/2 // also where there is no pause
	if !expired && !audit {
		return false
	}
	if audit {
		w.lastAudit = now
	}
	err := d.sweep(ctx, w, latest, audit)
	if err != nil && ctx.Err() == nil {
		d.log.ErrorContext(ctx, "sweep failed", "error", err)
	}
	return err == nil && w.more
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// expiredLast is what is kept of a job that has expired.
var expiredLast = shaper.LastResponse{Cause: shaper.CauseExpired, Reason: shaper.CauseExpired, Detail: "its time ran out while it waited"}.String()
