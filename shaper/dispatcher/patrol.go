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
	patrolInterval = 2 * time.Second       // between two rounds of look
	trimEvery      = 5                     // rounds of the patrol
	auditInterval  = 30 * time.Second      // between two audits; an audit compares jobs and lists
	emptyAudits    = 10                    // audit intervals between two audits of an empty bucket
	sweepAtMost    = 200                   // leases returned by one script
	sweepNames     = 1000                  // leases named by a script that audits nothing: each costs two commands
	sweepMore      = 100                   // after this many returned leases there may be more: the next sweep follows at once
	sweepSlack     = time.Second           // a Redis time this far ahead of ours is a step
	lastChance     = shaper.MaxCrashes - 1 // crashes after which a job is sent alone
	heartbeatBatch = 500
	purgeTurn      = time.Second // for which a sweep continues a purge
)

// bucketPatrol maintains one bucket: it returns lost leases, drops old entries, and passes events to hooks.
type bucketPatrol struct {
	*bucketConn
	sweepWatch
	shared *store.Store // scripts for many buckets share round trips
	claims *claimer
	deaths *deaths
	events eventSender
	stall  *stall      // shared by all buckets: a stall affects the whole process
	tended atomic.Bool // a goroutine maintains the bucket, and owns its sweepWatch

	// For the goroutine of all patrols.
	quiet    bool // the last look found nothing
	hasTimed bool // there are jobs that expire, or callbacks
	empty    bool // Redis keeps no data of the bucket to audit or trim
	trims    bool // Redis keeps data to trim
}

func newBucketPatrol(claims *claimer, deaths *deaths, shared *store.Store, stall *stall) *bucketPatrol {
	p := &bucketPatrol{bucketConn: claims.bucketConn, shared: shared, claims: claims, deaths: deaths, stall: stall}
	p.nextAudit = time.Now().Add(rand.N(auditInterval)) //nolint:gosec // spread
	return p
}

// lookAfter does the maintenance of one bucket. Only one call runs at a time.
func (p *bucketPatrol) lookAfter(ctx context.Context, s findings) {
	for p.tend(ctx, s) && ctx.Err() == nil {
	}
	if s.events {
		p.events.move(ctx)
	}
	if s.expiry != 0 && s.expiry <= p.clock.latest(time.Now()) {
		p.expire(ctx)
	}
	if p.deaths.some.Swap(false) || s.trims || s.trimsRound && p.deadFull != deadRoom { // also when the last dead letter is gone, to log it
		p.trimDead(ctx)
		p.emptyDisabled(ctx)
	}
	if s.trims {
		p.trimResults(ctx)
	}
}

// sweepWatch is the state of the sweeper of one bucket.
type sweepWatch struct {
	nextAudit time.Time
	lastAudit time.Time // when the last chunk was audited
	more      bool      // the last sweep returned as many leases as it may: there may be more
	auditing  bool      // an audit is under way, and continues at cursor and flows; "" for a part that is done
	cursor    string    // of the comparison of jobs and lists
	flows     string    // of the comparison of flows
	skips     int       // further audits to skip, because the bucket is empty
	oldest    oldestJob // the oldest job at the head of a list, of the flows audited so far
	spare     time.Time // until then no lease is returned
	pardon    time.Time // until then a lost lease counts as no crash
	missing   int64     // jobs in no list, as last seen
	deadFull  int       // how full of dead letters the bucket was, as last logged
}

// tend sweeps a bucket if a lease expired or an audit is due. It reports whether there may be more leases to return; then the caller calls it again
// at once.
func (p *bucketPatrol) tend(ctx context.Context, s findings) (more bool) {
	now := time.Now()
	if away := later(p.outage.lastLong(), p.stall.lastLong()); !away.IsZero() {
		// Redis was down, or this process stalled: leases expired because no process could extend them. Their holders get one heartbeat, and no crash
		// is counted.
		p.spare = later(p.spare, away.Add(p.heartbeatSeen()))
		p.pardon = later(p.pardon, away.Add(p.lease+2*patrolInterval))
	}
	latest := p.clock.latest(now)
	expired := s.deadline != 0 && (latest == 0 || s.deadline <= latest)
	audit := !now.Before(p.nextAudit) && now.Sub(p.lastAudit) >= patrolInterval/2 // also while tend is called without a pause
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

// expiredLast is the stored last response of a job that has expired.
var expiredLast = shaper.LastResponse{Cause: shaper.CauseExpired, Reason: shaper.CauseExpired, Detail: "its time ran out while it waited"}.String()
