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

// sight is what a look at a bucket saw.
type sight struct {
	waiting    bool  // there is something to send, and the claim loop sleeps
	deadline   int64 // of the lease that ends first, 0 none
	events     bool  // there are some, for hooks
	callbacks  bool  // there are some
	expiry     int64 // of the job that expires first, 0 none
	empty      bool  // Redis keeps nothing of the bucket that has to be audited
	trims      bool  // it keeps what is to be trimmed, and it is time for that
	trimsRound bool  // it is time for that
	err        error // nothing was seen
}

// patrol looks after all buckets until ctx ends. It wakes loops that missed a wake-up, returns jobs whose leases ended,
// and runs the sweeper. The buckets are looked after side by side, and their scripts share round trips: however many buckets there
// are and however far Redis is, the next look is not late.
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
		for i, s := range d.look(ctx, patrols) {
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

// look looks at every bucket. The buckets in which there was nothing the last time are asked about together, in one command for
// up to 50 of them; any other bucket costs one command while it is busy, and about three while its claim loop sleeps. All of that is one round trip,
// and a second one where something came into a bucket that had nothing. In a cluster each node is asked on its own, and one command
// is about one bucket: buckets of a node that does not answer are not seen, and the others are.
func (d *Dispatcher) look(ctx context.Context, patrols []*bucketPatrol) []sight {
	quiet := those(patrols, func(p *bucketPatrol) bool { return p.quiet })
	for _, p := range anyThere(ctx, d.store, quiet, (*bucketPatrol).lookedAt) {
		p.quiet, p.tells = false, true // perhaps: this look tells
	}
	// Buckets in which jobs expire, or of which something is to be told, are asked for that at each look, and all others cost a 50th of a
	// command.
	unknown := those(patrols, func(p *bucketPatrol) bool { return !p.quiet && !p.tells })
	for _, p := range anyThere(ctx, d.store, unknown, func(p *bucketPatrol) []string { return []string{p.Keys.Expiries(), p.Keys.Callbacks()} }) {
		p.tells = true
	}
	looks := make([]func(*sight), len(patrols))
	pipelined(ctx, d.store, len(patrols), func(i int) string { return patrols[i].Keys.Leases() }, func(pipe redis.Pipeliner, i int) {
		if !patrols[i].quiet {
			looks[i] = patrols[i].look(ctx, pipe)
		}
	})
	sights := make([]sight, len(patrols))
	for i, p := range patrols {
		sights[i].empty = p.empty
		if looks[i] != nil {
			looks[i](&sights[i])
		}
	}
	return sights
}

// lookForKept finds out of which buckets Redis keeps something that is to be audited or trimmed. A bucket of which it keeps nothing
// costs a 50th of a command.
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

// audited are the keys that the audit of the sweeper is about.
func (p *bucketPatrol) audited() []string {
	k := p.Keys
	return append(k.Purged(), k.Body(), k.Meta(), k.Attempts(), k.Leases(), k.Riders(), k.Seen(), k.SeenWindow(), k.SeenMinute(), k.SeenUntil(), k.Flows(), k.Groups(),
		k.Idle())
}

// trimmed are the keys of which the patrol drops what is old.
func (p *bucketPatrol) trimmed() []string {
	return []string{p.Keys.Dead(), p.Keys.Disabled(), p.Keys.ResultEnds()}
}

// lookedAt are the keys that a look is about: where none of them exists, there is nothing to see.
func (p *bucketPatrol) lookedAt() []string {
	keys := []string{p.Keys.Leases(), p.Keys.Expiries(), p.Keys.Callbacks()}
	if p.events.isNeeded() {
		keys = append(keys, p.Keys.Outbox())
	}
	switch {
	case !p.claims.sleeping.Load(): // it looks for work by itself
		return keys
	case p.HasFlows():
		return append(keys, p.Keys.TurnQueue())
	}
	return append(keys, p.Keys.Places("")...)
}

// look adds the commands of a look at one bucket to a pipeline, and returns what
// notes what they saw when it has run.
func (p *bucketPatrol) look(ctx context.Context, pipe redis.Pipeliner) func(*sight) {
	lease := pipe.ZRangeWithScores(ctx, p.Keys.Leases(), 0, 0)
	exists := func(asks bool, key string) *redis.IntCmd {
		if !asks {
			return &redis.IntCmd{}
		}
		return pipe.Exists(ctx, key)
	}
	outbox, callbacks := exists(p.events.isNeeded(), p.Keys.Outbox()), exists(p.tells || p.deaths.callbacks.isNeeded(), p.Keys.Callbacks())
	expiries := &redis.ZSliceCmd{}
	if p.tells {
		expiries = pipe.ZRangeWithScores(ctx, p.Keys.Expiries(), 0, 0)
	}
	work := func() (there, waiting bool, err error) { return false, false, nil }
	if p.claims.sleeping.Load() {
		work = p.lookForWork(ctx, pipe)
	}
	return func(s *sight) {
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
		p.tells = s.expiry != 0 || s.callbacks
		p.quiet = !there && !s.events && len(lease.Val()) == 0 && !p.tells
	}
}

// lookForWork looks whether there are jobs, and whether one of them can be sent.
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
