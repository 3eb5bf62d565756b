package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// askedTogether is how many buckets are in one question whether there is anything.
const askedTogether = 50

// sight is what a look at a bucket saw.
type sight struct {
	waiting    bool  // there is something to send, and the loop sleeps
	deadline   int64 // of the lease that ends first, 0 none
	events     bool  // there are some, for hooks
	callbacks  bool  // there are some
	expiry     int64 // of the job that expires first, 0 none
	empty      bool  // Redis keeps nothing of the bucket that has to be audited
	trims      bool  // it keeps what is to be trimmed, and it is time for that
	trimsRound bool  // it is time for that
	err        error // nothing was seen
}

// look looks at every bucket. The buckets in which there was nothing the last time are asked about together, in one command for
// up to 50 of them; any other bucket costs one command while it is busy, and about three while its loop sleeps. All of that is one round trip,
// and a second one where something came into a bucket that had nothing. In a cluster each node is asked on its own, and one command
// is about one bucket: buckets of a node that does not answer are not seen, and the others are.
func (d *Dispatcher) look(ctx context.Context, loops []*bucketLoop) []sight {
	sights := make([]sight, len(loops))
	var quiet, others []int
	for i, loop := range loops {
		sights[i].empty = loop.empty
		if loop.quiet {
			quiet = append(quiet, i)
		} else {
			others = append(others, i)
		}
	}
	there := d.anyThere(ctx, len(quiet), func(n int) []string { return loops[quiet[n]].lookedAt() })
	for n, i := range quiet {
		if there[n] {
			others, loops[i].expiring = append(others, i), true // perhaps: this look tells
		}
	}
	d.lookForExpiring(ctx, loops)
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	lua.Spread(ctx, d.store.Redis, len(others), func(n int) string { return loops[others[n]].Keys.Leases() }, func(some []int) {
		pipe := d.store.Redis.Pipeline()
		looks := make([]func(*sight), len(some))
		for at, n := range some {
			looks[at] = loops[others[n]].look(ctx, pipe)
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
		for at, n := range some {
			i := others[n]
			if looks[at](&sights[i]); sights[i].err != nil {
				sights[i].err = fmt.Errorf("look at bucket %q: %w", loops[i].Name, sights[i].err)
			}
		}
	})
	return sights
}

// lookForExpiring finds out in which of the buckets with something to see there may be jobs that expire. Those of which it is known tell
// it at each look, and all others cost a 50th of a command.
func (d *Dispatcher) lookForExpiring(ctx context.Context, loops []*bucketLoop) {
	unknown := slices.DeleteFunc(slices.Clone(loops), func(loop *bucketLoop) bool { return loop.quiet || loop.expiring })
	for n, is := range d.anyThere(ctx, len(unknown), func(n int) []string { return []string{unknown[n].Keys.Expiries()} }) {
		unknown[n].expiring = is
	}
}

// anyThere reports whether any of the keys of each of n buckets exists. Buckets are asked about together: all of them are reported
// where one has a key, and where the question was not answered.
func (d *Dispatcher) anyThere(ctx context.Context, n int, keys func(n int) []string) []bool {
	there := make([]bool, n)
	if n == 0 {
		return there
	}
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	together := askedTogether
	if _, ok := d.store.Redis.(*redis.ClusterClient); ok { // their keys are at several nodes
		together = 1
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	groups := slices.Collect(slices.Chunk(all, together))
	lua.Spread(ctx, d.store.Redis, len(groups), func(g int) string { return keys(groups[g][0])[0] }, func(some []int) {
		pipe := d.store.Redis.Pipeline()
		answers := make([]*redis.IntCmd, len(some))
		for at, g := range some {
			var names []string
			for _, i := range groups[g] {
				names = append(names, keys(i)...)
			}
			answers[at] = pipe.Exists(ctx, names...)
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
		for at, g := range some {
			for _, i := range groups[g] {
				there[i] = answers[at].Err() != nil || answers[at].Val() > 0
			}
		}
	})
	return there
}

// lookForKept finds out of which buckets Redis keeps something that is to be audited or trimmed. A bucket of which it keeps nothing
// costs a 50th of a command.
func (d *Dispatcher) lookForKept(ctx context.Context, loops []*bucketLoop) {
	var empty, some []int
	for i, loop := range loops {
		if loop.empty {
			empty = append(empty, i)
		} else {
			some = append(some, i)
		}
	}
	there := d.anyThere(ctx, len(empty), func(n int) []string { return append(loops[empty[n]].audited(), loops[empty[n]].trimmed()...) })
	for n, i := range empty {
		if there[n] {
			some = append(some, i)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	lua.Spread(ctx, d.store.Redis, len(some), func(n int) string { return loops[some[n]].Keys.Leases() }, func(part []int) {
		pipe := d.store.Redis.Pipeline()
		audited, trimmed := make([]*redis.IntCmd, len(part)), make([]*redis.IntCmd, len(part))
		for at, n := range part {
			loop := loops[some[n]]
			audited[at], trimmed[at] = pipe.Exists(ctx, loop.audited()...), pipe.Exists(ctx, loop.trimmed()...)
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
		for at, n := range part {
			loop := loops[some[n]]
			loop.trims = trimmed[at].Err() == nil && trimmed[at].Val() > 0
			loop.empty = audited[at].Err() == nil && audited[at].Val() == 0 && !loop.trims
		}
	})
}

// audited are the keys that the audit of the sweeper is about.
func (d *bucketLoop) audited() []string {
	k := d.Keys
	return append(k.Purged(), k.Body(), k.Meta(), k.Attempts(), k.Leases(), k.Riders(), k.Seen(), k.SeenWindow(), k.SeenMinute(), k.SeenUntil(), k.Flows(), k.Groups(),
		k.Idle())
}

// trimmed are the keys of which the patrol drops what is old.
func (d *bucketLoop) trimmed() []string {
	return []string{d.Keys.Dead(), d.Keys.Disabled(), d.Keys.ResultEnds()}
}

// lookedAt are the keys that a look is about: where none of them exists, there is nothing to see.
func (d *bucketLoop) lookedAt() []string {
	keys := []string{d.Keys.Leases(), d.Keys.Expiries()}
	if d.tellsEvents() {
		keys = append(keys, d.Keys.Outbox())
	}
	if d.tellsCallbacks() {
		keys = append(keys, d.Keys.Callbacks())
	}
	switch {
	case !d.isSleeping(): // it looks for work by itself
		return keys
	case d.HasFlows():
		return append(keys, d.Keys.Calendar())
	}
	return append(keys, d.Keys.Places("")...)
}

func (d *bucketLoop) tellsEvents() bool {
	return len(*d.hooks.Load()) > 0 && len(d.Settings.Load().Events) > 0
}

func (d *bucketLoop) tellsCallbacks() bool {
	return d.enqueue != nil && d.Settings.Load().Callbacks.Bucket != ""
}

// look adds the commands of a look at one bucket to a pipeline, and returns what
// notes what they saw when it has run.
func (d *bucketLoop) look(ctx context.Context, pipe redis.Pipeliner) func(*sight) {
	lease := pipe.ZRangeWithScores(ctx, d.Keys.Leases(), 0, 0)
	exists := func(asks bool, key string) *redis.IntCmd {
		if !asks {
			return &redis.IntCmd{}
		}
		return pipe.Exists(ctx, key)
	}
	outbox, callbacks := exists(d.tellsEvents(), d.Keys.Outbox()), exists(d.tellsCallbacks(), d.Keys.Callbacks())
	expiries := &redis.ZSliceCmd{}
	if d.expiring {
		expiries = pipe.ZRangeWithScores(ctx, d.Keys.Expiries(), 0, 0)
	}
	work := func() (there, waiting bool, err error) { return false, false, nil }
	if d.isSleeping() {
		work = d.lookForWork(ctx, pipe)
	}
	return func(s *sight) {
		there, waiting, err := work()
		s.err = cmp.Or(lease.Err(), outbox.Err(), callbacks.Err(), expiries.Err(), err)
		if s.err != nil {
			return
		}
		s.waiting, s.events, s.callbacks = waiting, outbox.Val() > 0, callbacks.Val() > 0
		if head := lease.Val(); len(head) > 0 {
			s.deadline = int64(head[0].Score)
		}
		if head := expiries.Val(); len(head) > 0 {
			s.expiry = int64(head[0].Score)
		}
		d.expiring = s.expiry != 0
		d.quiet = !there && !s.events && !s.callbacks && len(lease.Val()) == 0 && !d.expiring
	}
}

// lookForWork looks whether there are jobs, and whether one of them can be sent.
func (d *bucketLoop) lookForWork(ctx context.Context, pipe redis.Pipeliner) func() (there, waiting bool, err error) {
	latest := d.clock.latest(time.Now())
	if d.HasFlows() {
		head := pipe.ZRangeWithScores(ctx, d.Keys.Calendar(), 0, 0)
		offset := pipe.HMGet(ctx, d.Keys.Pace(), "offset") // of the calendar's clock
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
	places := d.Keys.Places("")
	lists := pipe.Exists(ctx, places[:len(places)-1]...)
	first := pipe.ZRangeWithScores(ctx, d.Keys.Later(""), 0, 0)
	return func() (there, waiting bool, err error) {
		delayed := first.Val()
		there = lists.Val() > 0 || len(delayed) > 0
		return there, lists.Val() > 0 || len(delayed) > 0 && int64(delayed[0].Score) <= latest, cmp.Or(lists.Err(), first.Err())
	}
}
