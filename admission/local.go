package admission

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tundish-io/tundish/lua"
)

// maxLocals bounds the keys of Local limits that a process stores. It drops the least recently used key first. A dropped key starts again with a
// full share, and Redis never learns what it admitted.
const maxLocals = 16_384

// locals are the states of Local limits in this process: the last reply of Redis for a key, and, while Redis is unavailable, a token bucket with
// this instance's share.
//
// The share is the limit's rate and burst (in a window: its number) divided by the last known number of instances; the burst is at least 1. It
// starts with this instance's part of what Redis last had left, refilled since, or full if nothing is known. A cost above the whole share passes
// when the share is full, and is paid off before the next one. So all instances together admit the limit's rate, and no more than its burst at
// once. That holds as long as the number of instances is right and each instance has its part of the callers.
type locals struct {
	of    *lru.Cache[string, *local]
	owing *atomic.Int64 // keys with admitted requests that Redis does not know
	busy  *atomic.Bool  // a report of them is under way
}

type local struct {
	mu    sync.Mutex
	gate  *gate
	limit *compiledLimit

	remaining int64 // by the last reply of Redis
	said      time.Time

	active    bool
	share     float64
	perSecond float64
	level     float64
	at        time.Time
	admitted  int64 // since Redis is away
	reporting int64 // of the admitted ones
}

func newLocals() locals {
	l := locals{owing: new(atomic.Int64), busy: new(atomic.Bool)}
	l.of, _ = lru.NewWithEvict(maxLocals, func(_ string, old *local) { // fails for sizes below 1 only
		old.mu.Lock()
		defer old.mu.Unlock()
		if old.admitted > 0 {
			l.owing.Add(-1)
			old.admitted = 0
		}
	})
	return l
}

// get returns the state of a key. Two calls that begin at once may make two states; the
// later one stays.
func (ls locals) get(g *gate, f *compiledLimit, key string) *local {
	if l, ok := ls.of.Get(key); ok {
		return l
	}
	l := &local{gate: g, limit: f}
	if known, ok, _ := ls.of.PeekOrAdd(key, l); ok {
		return known
	}
	return l
}

// saw stores the remaining requests that Redis reported.
func (ls locals) saw(g *gate, f *compiledLimit, key string, remaining int64) {
	l := ls.get(g, f, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate, l.limit, l.remaining, l.said = g, f, remaining, time.Now()
	if l.admitted == 0 {
		l.active = false
	}
}

// decide applies this instance's share of the limit.
func (ls locals) decide(g *gate, f *compiledLimit, key string, n, instances int64, now time.Time) Decision {
	if n > f.quota {
		return ls.decision(f, lua.NeverAllowed, 0, 0, 0)
	}
	l := ls.get(g, f, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(g, f, float64(instances), now)
	need := min(float64(n), l.share)
	if l.level < need {
		return ls.decision(f, lua.Refused, l.level, l.until(need), l.until(l.share))
	}
	l.level -= float64(n)
	if l.admitted == 0 {
		ls.owing.Add(1)
	}
	l.admitted += n
	return ls.decision(f, lua.Allowed, l.level, 0, l.until(l.share))
}

func (locals) decision(f *compiledLimit, verdict int64, level float64, wait, reset time.Duration) Decision {
	d := f.decide(verdict, max(int64(level), 0), wait.Microseconds(), reset.Microseconds())
	d.Source = FromLocal
	return d
}

// take refills the level up to now, starting from the last known state of Redis.
func (l *local) take(g *gate, f *compiledLimit, instances float64, now time.Time) {
	if l.active && l.limit == f {
		l.refill(now)
		return
	}
	level, at := l.level, l.at
	wasActive := l.active
	l.perSecond = f.Limit.Limit.PerSecond() / instances
	l.share = max(float64(f.quota)/instances, 1)
	switch {
	case wasActive: // the limit was changed meanwhile
		l.level, l.at = level, at
	case l.said.IsZero():
		l.level, l.at = l.share, now
	default:
		l.level, l.at = float64(l.remaining)/instances, l.said
	}
	l.gate, l.limit, l.active = g, f, true
	l.refill(now)
}

func (l *local) refill(now time.Time) {
	if passed := now.Sub(l.at); passed > 0 {
		l.level += passed.Seconds() * l.perSecond
		l.at = now
	}
	l.level = min(l.level, l.share)
}

// until returns the time until the bucket has that level.
func (l *local) until(level float64) time.Duration {
	if l.level >= level {
		return 0
	}
	return time.Duration(math.Ceil((level-l.level)/l.perSecond*1e6)+1) * time.Microsecond
}

// owed returns how much Redis is to take first for a key: requests that were admitted without
// Redis and are not refilled yet. [locals.reported] must follow.
func (ls locals) owed(key string) int64 {
	if ls.owing.Load() == 0 {
		return 0
	}
	l, ok := ls.of.Peek(key)
	if !ok {
		return 0
	}
	return l.owed(time.Now())
}

func (l *local) owed(now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.admitted == 0 || l.reporting > 0 {
		return 0
	}
	l.refill(now)
	l.reporting = l.admitted
	return max(min(l.admitted, int64(math.Ceil(l.share-l.level))), 1)
}

// reported records whether Redis accepted what owed returned.
func (ls locals) reported(key string, n int64, ok bool) {
	if n == 0 {
		return
	}
	l, found := ls.of.Peek(key)
	if !found {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok && l.admitted > 0 {
		if l.admitted -= l.reporting; l.admitted <= 0 {
			l.admitted, l.active = 0, false
			ls.owing.Add(-1)
		}
	}
	l.reporting = 0
}

// reconcile reports to Redis, once it is back, the requests that were admitted without it. It runs in the background, a batch of keys at a time.
// A question about a key reports that key itself.
func (l *Limiter) reconcile(ctx context.Context) {
	if l.locals.owing.Load() == 0 || !l.locals.busy.CompareAndSwap(false, true) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	l.background.Go(func() {
		defer l.locals.busy.Store(false)
		counted := 0
		for {
			n, err := l.report(ctx)
			counted += n
			if err != nil || n == 0 {
				if counted > 0 {
					l.log.InfoContext(ctx, "Redis is back: requests that were admitted without it are counted", "keys", counted)
				}
				return
			}
		}
	})
}

// report sends a batch of keys of limits of one kind to Redis.
func (l *Limiter) report(ctx context.Context) (int, error) {
	start := time.Now()
	var batch []*question
	var of *gate
	for _, key := range l.locals.of.Keys() {
		state, ok := l.locals.of.Peek(key)
		if !ok || len(batch) == maxBatch {
			continue
		}
		state.mu.Lock()
		g, f := state.gate, state.limit
		state.mu.Unlock()
		f = g.current(f)
		if of != nil && (g != of || f.kind != batch[0].kind) {
			continue
		}
		n := state.owed(start)
		if n == 0 {
			continue
		}
		of = g
		q := newQuestion(ctx, f, key, 0, start)
		q.report = n
		batch = append(batch, q)
	}
	if len(batch) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	c := of.newAllowCall(batch)
	err := c.exchange(ctx)
	c.decode(err)
	for _, q := range batch {
		l.locals.reported(q.key, q.report, q.err == nil)
		if q.err != nil {
			err = q.err
		}
	}
	return len(batch), err
}

// current returns the effective limit for the tier of f.
func (g *gate) current(f *compiledLimit) *compiledLimit {
	if s := g.source.Load(); s != nil {
		return s.latest.Load().forTier(f.tier)
	}
	return f
}
