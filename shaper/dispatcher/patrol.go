package dispatcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

const (
	patrolInterval = 2 * time.Second       // a look at every bucket: see look
	trimEvery      = 5                     // rounds of the patrol
	auditInterval  = 30 * time.Second      // a chunk of the comparison of jobs and places
	emptyAudits    = 10                    // intervals between two audits of an empty bucket
	sweepAtMost    = 200                   // leases taken back by one script
	sweepNames     = 1000                  // leases named by one that compares nothing: each costs two commands
	sweepMore      = 100                   // after so many taken back there may be more: the next sweep does not wait
	sweepSlack     = time.Second           // Redis time this far ahead of ours is a step
	lastChance     = shaper.MaxCrashes - 1 // crashes after which a job goes alone
	heartbeatBatch = 500
	purgeTurn      = time.Second // of a sweep that goes on with a purge
)

// patrol looks after all buckets until ctx ends. It wakes loops that missed a wake-up, returns jobs whose leases ended,
// and runs the sweeper. The buckets are looked after side by side, and their scripts share round trips: however many buckets there
// are and however far Redis is, the next look is not late.
func (d *Dispatcher) patrol(ctx context.Context) {
	var tending sync.WaitGroup
	defer tending.Wait()
	for round := 0; sleep(ctx, patrolInterval*9/10+rand.N(patrolInterval/5)); round++ { //nolint:gosec // jitter
		d.forgetGone()
		loops := *d.loops.Load()
		trims := round%trimEvery == 0
		if trims {
			d.lookForKept(ctx, loops)
		}
		began := time.Now()
		for i, s := range d.look(ctx, loops) {
			loop := loops[i]
			if s.err != nil {
				loop.outage.failed(ctx, began, s.err)
				continue
			}
			loop.outage.worked(ctx, began, d.cfg.Lease)
			if s.waiting {
				loop.nudge()
			}
			if s.callbacks {
				loop.someToTell()
			}
			s.trims, s.trimsRound = trims && loop.trims, trims
			if loop.tended.CompareAndSwap(false, true) {
				tending.Go(func() {
					defer loop.tended.Store(false)
					loop.lookAfter(ctx, s)
				})
			}
		}
	}
}

// lookAfter does what there is to do for one bucket. One call is under way at a time.
func (d *bucketLoop) lookAfter(ctx context.Context, s sight) {
	for d.tend(ctx, &d.sweeps, s) && ctx.Err() == nil {
	}
	if s.events {
		d.moveEvents(ctx)
	}
	if s.expiry != 0 && s.expiry <= d.clock.latest(time.Now()) {
		d.expire(ctx)
	}
	if d.died.Swap(false) || s.trims || s.trimsRound && d.sweeps.deadFull != deadRoom { // the last dead letter went: that is to be logged
		d.trimDead(ctx, &d.sweeps)
		d.emptyDisabled(ctx)
	}
	if s.trims {
		d.trimResults(ctx)
	}
}

// sweepWatch is what the sweeper of one bucket remembers.
type sweepWatch struct {
	nextAudit time.Time
	lastAudit time.Time // when the last chunk of one was looked at
	more      bool      // the last sweep took so many leases back that there may be more
	auditing  bool      // it goes on where these are; "" where that part is done
	cursor    string    // of the comparison of jobs and places
	flows     string    // of the flows
	skips     int       // audits that an empty bucket does not need
	oldest    oldestJob // at the head of a list, of the flows that this audit has been through
	spare     time.Time // until then no lease is taken back
	pardon    time.Time // until then a lost lease is no crash
	missing   int64     // jobs without a place, as last seen
	deadFull  int       // how full of dead letters the bucket is, as last logged
}

// tend sweeps a bucket if a lease ran out or a comparison is due. It reports whether there may be more leases
// to take back, and is to be called again at once.
func (d *bucketLoop) tend(ctx context.Context, w *sweepWatch, s sight) (more bool) {
	now := time.Now()
	if away := later(d.outage.lastLong(), d.stall.lastLong()); !away.IsZero() {
		// Redis was away, or this process stood still: leases ran out because nobody could extend them.
		// Their holders get one heartbeat, and nobody is called a crash.
		w.spare = later(w.spare, away.Add(d.heartbeatSeen()))
		w.pardon = later(w.pardon, away.Add(d.lease+2*patrolInterval))
	}
	latest := d.clock.latest(now)
	expired := s.deadline != 0 && (latest == 0 || s.deadline <= latest)
	audit := !now.Before(w.nextAudit) && now.Sub(w.lastAudit) >= patrolInterval/2 // also where there is no pause
	if audit && s.empty && w.skips > 0 && !w.auditing {
		w.skips, w.nextAudit, audit = w.skips-1, now.Add(auditInterval), false
	}
	if !expired && !audit {
		return false
	}
	if audit {
		w.lastAudit, w.skips = now, 0
		if s.empty {
			w.skips = emptyAudits - 1
		}
	}
	err := d.sweep(ctx, w, latest, audit)
	if err != nil && ctx.Err() == nil {
		d.log.ErrorContext(ctx, "sweep failed", "error", err)
	}
	return err == nil && w.more
}

// expiredLast is what is kept of a job that has expired.
var expiredLast = shaper.LastResponse{Cause: shaper.CauseExpired, Reason: shaper.CauseExpired, Detail: "its time ran out while it waited"}.String()
