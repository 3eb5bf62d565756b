package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// findings has what a check found of one bucket. Times are microseconds.
type findings struct {
	waiting    bool  // there are jobs to send, and the claim loop sleeps
	deadline   int64 // of the lease that ends first; 0: none
	events     bool  // there are events for hooks
	callbacks  bool  // there are callbacks to move
	expiry     int64 // of the job that expires first; 0: none
	empty      bool  // Redis keeps nothing of the bucket that needs an audit
	trims      bool  // Redis keeps data to be trimmed, and this is a trim round
	trimsRound bool  // this is a trim round
	err        error // the look failed
}

// patrol checks all buckets until ctx ends. It wakes loops that missed a wake-up, returns jobs whose leases ended, and runs the sweeper. Buckets are
// handled in parallel, and their scripts share round trips. So a large number of buckets or a far Redis does not delay the next round.
func (d *Dispatcher) patrol(ctx context.Context) {
	var tending sync.WaitGroup
	defer tending.Wait()
	for round := 0; sleep(ctx, patrolInterval*9/10+rand.N(patrolInterval/5)); round++ { //nolint:gosec // jitter
		d.forgetGone()
		d.checkSkew(ctx, time.Now())
		var patrols []*bucketPatrol
		for _, l := range *d.loops.Load() {
			patrols = append(patrols, l.patrol)
		}
		trims := round%trimEvery == 0
		if trims {
			d.lookForKept(ctx, patrols)
		}
		began := time.Now()
		for i, s := range d.checkBuckets(ctx, patrols) {
			p := patrols[i]
			if s.err != nil {
				p.outage.lookFailed(ctx, began, s.err)
				continue
			}
			p.outage.looked(ctx, began, p.lease)
			if s.waiting {
				p.claims.wake.put()
			}
			if s.callbacks {
				p.deaths.callbacks.wake()
			}
			s.trims, s.trimsRound = trims && p.trims, trims
			if p.tended.CompareAndSwap(false, true) {
				tending.Go(func() {
					defer p.tended.Store(false)
					p.lookAfter(ctx, s)
				})
			}
		}
	}
}

// checkBuckets checks every bucket. Buckets that were empty at the last look share one command per 50. Any other bucket costs one command while it is busy,
// and about three while its claim loop sleeps. All of that is one to three round trips. In a cluster each node is asked
// separately, with one command per bucket: only the buckets of a node that does not respond are missed.
func (d *Dispatcher) checkBuckets(ctx context.Context, patrols []*bucketPatrol) []findings {
	quiet := those(patrols, func(p *bucketPatrol) bool { return p.quiet })
	for _, p := range anyThere(ctx, d.store, quiet, (*bucketPatrol).lookedAt) {
		p.quiet, p.hasTimed = false, true // perhaps: this look finds out
	}
	// Buckets with jobs that expire or with callbacks are asked for both at each look. All others share one command per 50 buckets.
	unknown := those(patrols, func(p *bucketPatrol) bool { return !p.quiet && !p.hasTimed })
	for _, p := range anyThere(ctx, d.store, unknown, func(p *bucketPatrol) []string { return []string{p.Keys.Expiries(), p.Keys.Callbacks()} }) {
		p.hasTimed = true
	}
	checks := make([]func(*findings), len(patrols))
	pipelined(ctx, d.store, len(patrols), func(i int) string { return patrols[i].Keys.Leases() }, func(pipe redis.Pipeliner, i int) {
		if !patrols[i].quiet {
			checks[i] = patrols[i].queueCheck(ctx, pipe)
		}
	})
	found := make([]findings, len(patrols))
	for i, p := range patrols {
		found[i].empty = p.empty
		if checks[i] != nil {
			checks[i](&found[i])
		}
	}
	return found
}

// lookForKept finds the buckets with data in Redis to be audited or trimmed. Buckets without such data share one command per 50.
func (d *Dispatcher) lookForKept(ctx context.Context, patrols []*bucketPatrol) {
	empty := those(patrols, func(p *bucketPatrol) bool { return p.empty })
	for _, p := range anyThere(ctx, d.store, empty, func(p *bucketPatrol) []string { return append(p.audited(), p.trimmed()...) }) {
		p.empty = false
	}
	some := those(patrols, func(p *bucketPatrol) bool { return !p.empty })
	audited, trimmed := make([]*redis.IntCmd, len(some)), make([]*redis.IntCmd, len(some))
	pipelined(ctx, d.store, len(some), func(i int) string { return some[i].Keys.Leases() }, func(pipe redis.Pipeliner, i int) {
		audited[i], trimmed[i] = pipe.Exists(ctx, some[i].audited()...), pipe.Exists(ctx, some[i].trimmed()...)
	})
	for i, p := range some {
		p.trims = trimmed[i].Err() == nil && trimmed[i].Val() > 0
		p.empty = audited[i].Err() == nil && audited[i].Val() == 0 && !p.trims
	}
}

// audited returns the keys that the sweeper's audit covers.
func (p *bucketPatrol) audited() []string {
	k := p.Keys
	return append(k.Purged(), k.Body(), k.Meta(), k.Attempts(), k.Leases(), k.Followers(), k.Seen(), k.SeenWindow(), k.SeenMinute(), k.Flows(), k.Groups(),
		k.Idle())
}

// trimmed returns the keys from which the patrol drops old entries.
func (p *bucketPatrol) trimmed() []string {
	return []string{p.Keys.Dead(), p.Keys.Disabled(), p.Keys.ResultEnds()}
}

// lookedAt returns the keys that a look reads. If none of them exists, the bucket is quiet.
func (p *bucketPatrol) lookedAt() []string {
	keys := []string{p.Keys.Leases(), p.Keys.Expiries(), p.Keys.Callbacks()}
	if p.events.isNeeded() {
		keys = append(keys, p.Keys.Outbox())
	}
	switch {
	case !p.claims.sleeping.Load(): // it polls by itself
		return keys
	case p.HasFlows():
		return append(keys, p.Keys.TurnQueue())
	}
	return append(keys, p.Keys.Places("")...)
}

// queueCheck adds the commands for one bucket to a pipeline. It returns a function that fills in the findings after the pipeline has run.
func (p *bucketPatrol) queueCheck(ctx context.Context, pipe redis.Pipeliner) func(*findings) {
	lease := pipe.ZRangeWithScores(ctx, p.Keys.Leases(), 0, 0)
	exists := func(asks bool, key string) *redis.IntCmd {
		if !asks {
			return &redis.IntCmd{}
		}
		return pipe.Exists(ctx, key)
	}
	outbox, callbacks := exists(p.events.isNeeded(), p.Keys.Outbox()), exists(p.hasTimed || p.deaths.callbacks.isNeeded(), p.Keys.Callbacks())
	expiries := &redis.ZSliceCmd{}
	if p.hasTimed {
		expiries = pipe.ZRangeWithScores(ctx, p.Keys.Expiries(), 0, 0)
	}
	work := func() (there, waiting bool, err error) { return false, false, nil }
	if p.claims.sleeping.Load() {
		work = p.lookForWork(ctx, pipe)
	}
	return func(s *findings) {
		there, waiting, err := work()
		s.err = cmp.Or(lease.Err(), outbox.Err(), callbacks.Err(), expiries.Err(), err)
		if s.err != nil {
			s.err = fmt.Errorf("look at bucket %q: %w", p.Name, s.err)
			return
		}
		s.waiting, s.events, s.callbacks = waiting, outbox.Val() > 0, callbacks.Val() > 0
		if head := lease.Val(); len(head) > 0 {
			s.deadline = int64(head[0].Score)
		}
		if head := expiries.Val(); len(head) > 0 {
			s.expiry = int64(head[0].Score)
		}
		p.hasTimed = s.expiry != 0 || s.callbacks
		p.quiet = !there && !s.events && len(lease.Val()) == 0 && !p.hasTimed
	}
}

// lookForWork adds the commands that find whether there are jobs (there), and whether one of them can be sent now (waiting).
func (p *bucketPatrol) lookForWork(ctx context.Context, pipe redis.Pipeliner) func() (there, waiting bool, err error) {
	latest := p.clock.latest(time.Now())
	if p.HasFlows() {
		head := pipe.ZRangeWithScores(ctx, p.Keys.TurnQueue(), 0, 0)
		offset := pipe.HMGet(ctx, p.Keys.Pace(), "offset") // of the turn queue's clock
		return func() (there, waiting bool, err error) {
			ahead := int64(0)
			if values := offset.Val(); len(values) > 0 {
				text, _ := values[0].(string)
				ahead, _ = strconv.ParseInt(text, 10, 64) // 0 without one
			}
			there = len(head.Val()) > 0
			return there, there && int64(head.Val()[0].Score) <= latest+ahead, cmp.Or(head.Err(), offset.Err())
		}
	}
	places := p.Keys.Places("")
	lists := pipe.Exists(ctx, places[:len(places)-1]...)
	first := pipe.ZRangeWithScores(ctx, p.Keys.Later(""), 0, 0)
	return func() (there, waiting bool, err error) {
		delayed := first.Val()
		there = lists.Val() > 0 || len(delayed) > 0
		return there, lists.Val() > 0 || len(delayed) > 0 && int64(delayed[0].Score) <= latest, cmp.Or(lists.Err(), first.Err())
	}
}
