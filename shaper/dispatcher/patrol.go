package dispatcher

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
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

// bucketPatrol looks after one bucket: it takes back what was lost, drops what is old, and tells hooks of events.
type bucketPatrol struct {
	*bucketConn
	sweepWatch
	shared *store.Store // scripts for many buckets share round trips
	claims *claimer
	deaths *deaths
	events eventTeller
	stall  *stall      // shared by all buckets: the process is one
	tended atomic.Bool // a goroutine looks after the bucket, whose own sweepWatch is

	// Of the goroutine of all patrols.
	quiet bool // the last look saw nothing
	tells bool // there were jobs that expire, or outcomes that are to be told
	empty bool // Redis keeps nothing of the bucket that is to be audited or trimmed
	trims bool // it keeps something that is to be trimmed
}

func newBucketPatrol(claims *claimer, deaths *deaths, shared *store.Store, stall *stall) *bucketPatrol {
	p := &bucketPatrol{bucketConn: claims.bucketConn, shared: shared, claims: claims, deaths: deaths, stall: stall}
	p.nextAudit = time.Now().Add(rand.N(auditInterval)) //nolint:gosec // spread
	return p
}

// lookAfter does what there is to do for one bucket. One call is under way at a time.
func (p *bucketPatrol) lookAfter(ctx context.Context, s sight) {
	for p.tend(ctx, s) && ctx.Err() == nil {
	}
	if s.events {
		p.events.move(ctx)
	}
	if s.expiry != 0 && s.expiry <= p.clock.latest(time.Now()) {
		p.expire(ctx)
	}
	if p.deaths.some.Swap(false) || s.trims || s.trimsRound && p.deadFull != deadRoom { // the last dead letter went: that is to be logged
		p.trimDead(ctx)
		p.emptyDisabled(ctx)
	}
	if s.trims {
		p.trimResults(ctx)
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
func (p *bucketPatrol) tend(ctx context.Context, s sight) (more bool) {
	now := time.Now()
	if away := later(p.outage.lastLong(), p.stall.lastLong()); !away.IsZero() {
		// Redis was away, or this process stood still: leases ran out because no process could extend them.
		// Their holders get one heartbeat, and no crash is counted.
		p.spare = later(p.spare, away.Add(p.heartbeatSeen()))
		p.pardon = later(p.pardon, away.Add(p.lease+2*patrolInterval))
	}
	latest := p.clock.latest(now)
	expired := s.deadline != 0 && (latest == 0 || s.deadline <= latest)
	audit := !now.Before(p.nextAudit) && now.Sub(p.lastAudit) >= patrolInterval/2 // also where there is no pause
	if audit && s.empty && p.skips > 0 && !p.auditing {
		p.skips, p.nextAudit, audit = p.skips-1, now.Add(auditInterval), false
	}
	if !expired && !audit {
		return false
	}
	if audit {
		p.lastAudit, p.skips = now, 0
		if s.empty {
			p.skips = emptyAudits - 1
		}
	}
	err := p.sweep(ctx, latest, audit)
	if err != nil && ctx.Err() == nil {
		p.log.ErrorContext(ctx, "sweep failed", "error", err)
	}
	return err == nil && p.more
}

// expiredLast is what is kept of a job that has expired.
var expiredLast = shaper.LastResponse{Cause: shaper.CauseExpired, Reason: shaper.CauseExpired, Detail: "its time ran out while it waited"}.String()
