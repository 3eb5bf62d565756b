package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/coalesce"
	"github.com/tundish-io/tundish/redisconn"
)

// DefaultLimiterTimeout bounds a question if no other time is given. It is so short that a question under way when Redis stops is answered within
// half a second.
const DefaultLimiterTimeout = 250 * time.Millisecond

// MaxCost is the highest cost of a question.
const MaxCost = 1_000_000

// ErrClosed says that the limiter was closed before the call.
var ErrClosed = errors.New("admission: the limiter is closed")

// givenLimits is how many limits that are given by value a limiter caches.
const givenLimits = 1000

// LimiterConfig configures a [Limiter]. Only Redis is required.
type LimiterConfig struct {
	Redis    redis.UniversalClient // made by [redisconn.Connect]
	Limits   []Limit               // the limits that [Limiter.Ask] knows by name
	Revision int64                 // of the configuration that has Limits. If Redis holds a higher one, that one is effective
	Timeout  time.Duration         // of one question, all included; 0 means DefaultLimiterTimeout. At least twice the round trip
	Breaker  *redisconn.Breaker    // shared by all that talk to this Redis; nil means one of its own
	Metrics  *Metrics              // nil counts nothing
	Logger   *slog.Logger          // nil logs nothing

	// ReadOnly makes this process read-only: another process, such as `producer serve`, sets the limits. This one creates what is missing, and uses
	// the effective limits. Override and ResetOverride change them all the same.
	ReadOnly bool
}

// Limiter asks limits on their own, outside any bucket. It is safe for concurrent use.
//
// Concurrent questions of one limit share round trips (package coalesce); a lone question takes one. The first question of a configured limit
// takes two more, and so does the first one after a change of the limit. A refused caller that retries early is refused without a round trip,
// for up to a second at a time.
//
// When Redis does not respond, each limit does what its OnStoreFailure says; a limit in shadow mode admits everybody. An answer takes at most
// LimiterConfig.Timeout, and less than a millisecond while the breaker is open.
//
// A question whose reply is lost may have spent: asking again then errs on the side of refusing. No question is ever sent twice.
type Limiter struct {
	redis   redis.UniversalClient
	timeout time.Duration
	breaker *redisconn.Breaker
	metrics *Metrics
	log     *slog.Logger
	owns    int    // 1: this process sets its limits
	now     string // microseconds, for tests; "" asks the server

	mu       sync.Mutex // of changes of the next
	gates    atomic.Pointer[gates]
	given    *lru.Cache[string, *gate]
	last     atomic.Pointer[gate] // the gate of given that was used last
	refusals refusals
	spread   Spread
	locals   locals
	chunks   chunks
	presence presence
	turns    turns // of Wait
	awayLog  rate.Sometimes
	fullLog  rate.Sometimes

	calls      *coalesce.Calls
	background sync.WaitGroup // work in the background
}

// gates are the gates of the configured limits, by name and in their order.
type gates struct {
	byName map[string]*gate
	order  []*gate
}

// NewLimiter checks the limits and returns a limiter. It does not talk to Redis
// yet: the first question of a limit writes what its script obeys.
func NewLimiter(cfg LimiterConfig) (*Limiter, error) {
	if cfg.Redis == nil {
		return nil, errors.New("admission: no Redis client is given")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultLimiterTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Breaker == nil {
		cfg.Breaker = redisconn.NewBreaker(redisconn.BreakerConfig{Logger: cfg.Logger, OnChange: cfg.Metrics.SetBreaker})
	}
	given, err := lru.New[string, *gate](givenLimits)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	l := &Limiter{
		redis: cfg.Redis, timeout: cfg.Timeout, breaker: cfg.Breaker, metrics: cfg.Metrics, log: cfg.Logger,
		given: given, refusals: newRefusals(), locals: newLocals(), chunks: newChunks(), presence: newPresence(), turns: turns{byKey: map[turnKey]*turn{}},
		awayLog: rate.Sometimes{First: 1, Interval: 10 * time.Second},
		fullLog: rate.Sometimes{First: 1, Interval: 10 * time.Second},
		calls:   coalesce.NewCalls(),
	}
	if !cfg.ReadOnly {
		l.owns = 1
	}
	l.gates.Store(&gates{})
	return l, l.setLimits(cfg.Limits, cfg.Revision)
}

// Close waits until the calls under way are answered and the background work has ended, which takes up to LimiterConfig.Timeout. Every later
// call returns [ErrClosed]. It may be called several times, also concurrently with other calls. The Redis client stays open: it belongs to the
// caller.
func (l *Limiter) Close() {
	l.calls.Close()
	l.background.Wait()
}

// setLimits replaces the configured limits. A limit that remains keeps its calls under way.
func (l *Limiter) setLimits(limits []Limit, revision int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.gates.Load()
	next := &gates{byName: make(map[string]*gate, len(limits))}
	sources := make([]*source, len(limits))
	for i, limit := range limits {
		if next.byName[limit.Name] != nil {
			return fmt.Errorf("limit %q: is given twice", limit.Name)
		}
		g, override := old.byName[limit.Name], Patch{}
		if g == nil {
			g = newGate(l, limit.Name)
		} else {
			override = g.source.Load().latest.Load().override
		}
		s, err := newSource(limit, revision, override)
		if err != nil {
			return err
		}
		next.byName[limit.Name], sources[i] = g, s
		next.order = append(next.order, g)
	}
	for i, g := range next.order {
		g.source.Store(sources[i])
	}
	l.gates.Store(next)
	return nil
}

// configured returns the gate of a configured limit.
func (l *Limiter) configured(name string) (*gate, error) {
	if g := l.gates.Load().byName[name]; g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownLimit, name)
}

// byValue returns the gate of a limit that is given by value.
func (l *Limiter) byValue(name string) *gate {
	if g := l.last.Load(); g != nil && g.name == name {
		return g // without the lock of the others, for which threads would wait in turn
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g, ok := l.given.Get(name)
	if !ok {
		g = newGate(l, name)
		l.given.Add(name, g)
	}
	l.last.Store(g)
	return g
}

// Allow asks whether n requests (1 to [MaxCost]) may pass for key now, and spends them if so. A refusal spends nothing and is no error. The limit
// applies as it is given here, whatever is configured under its name. Limits of one name share their state. Key is made by [Limit.Key], or is another
// text of the caller's choice; "" is an exempt caller.
//
// An error that is [redisconn.Unavailable] means that Redis did not respond and that the limit is [Closed]. It is then unknown whether requests were
// spent. Any other error is permanent: a limit that is not valid, a cost out of range.
func (l *Limiter) Allow(ctx context.Context, limit Limit, key string, n int64) (Decision, error) {
	if !l.calls.Enter() {
		return Decision{}, ErrClosed
	}
	defer l.calls.Leave()
	start := time.Now()
	limit = limit.WithDefaults()
	g := l.byValue(limit.Name)
	f, err := g.compiledOf(&limit)
	var d Decision
	if err == nil {
		d, err = l.decide(ctx, g, f, safeKey(key), n, start, nil)
	}
	l.metrics.observe(limit.Name, key, &d, err, start)
	return d, err
}

// decide answers one question, and gives a refused caller a position among the refused ones. A key of "" is an exempt caller. If away is not nil,
// Redis is unavailable.
func (l *Limiter) decide(ctx context.Context, g *gate, f *compiledLimit, key string, n int64, start time.Time, away error) (Decision, error) {
	d, err := l.evaluate(ctx, g, f, key, n, start, away)
	if d.RetryAfter > 0 && !d.Allowed && l.now == "" {
		d.Spread = l.spread.Delay(f.prefix+key, d.RetryAfter, time.Duration(n)*f.Limit.Limit.Interval(), start)
	}
	return d, err
}

func (l *Limiter) evaluate(ctx context.Context, g *gate, f *compiledLimit, key string, n int64, start time.Time, away error) (Decision, error) {
	if n < 1 || n > MaxCost {
		return Decision{}, fmt.Errorf("limit %q: cost %d: want 1 to %d", f.Name, n, MaxCost)
	}
	if key == "" {
		return f.exempt(), nil
	}
	key = f.prefix + key
	if away != nil {
		return l.away(ctx, g, f, key, n, away)
	}
	if l.now == "" {
		if d, ok := l.refusals.recall(f, key, n, start); ok {
			return d, nil
		}
	}
	q := newQuestion(ctx, f, key, n, start)
	if f.SyncInterval > 0 {
		if d, ok := l.chunks.give(q); ok {
			return d, nil
		}
	}
	q.report = l.locals.owed(key)
	err := g.ask(q)
	l.locals.reported(key, q.report, err == nil)
	if f.SyncInterval > 0 {
		l.chunks.keep(q, err)
	}
	if err != nil {
		if redisconn.Unavailable(err) && ctx.Err() == nil {
			return l.away(ctx, g, f, key, n, err)
		}
		return Decision{}, fmt.Errorf("limit %q: %w", f.Name, err)
	}
	d := f.decide(q.verdict, q.remaining, q.wait, q.reset)
	if q.shared {
		d.Overflow = true
		l.fullLog.Do(func() {
			l.log.WarnContext(ctx, "a limit has as many keys as it may: callers above them share one", "limit", f.Name, "max_keys", f.MaxKeys)
		})
	}
	switch q.verdict {
	case lua.Refused:
		l.refusals.remember(f, key, n, start, d)
	case lua.Allowed:
		l.refusals.forget(key)
	}
	if f.OnStoreFailure == Local {
		l.locals.saw(g, f, key, q.remaining)
		l.presence.say(ctx, l)
	}
	l.reconcile(ctx)
	return d, nil
}

// Asked reports whether a verdict of the scripts is one.
func Asked(verdict int64) bool { return verdict != lua.NotAsked }

// Decide makes a decision from the four numbers that lua/enqueue.lua returns: verdict, whole requests remaining, and two times in microseconds.
func (l Limit) Decide(verdict, remaining, wait, reset int64) Decision {
	f := compiledLimit{Limit: l}
	f.quota, f.window = l.Policy()
	d := f.decide(verdict%lua.Shared, remaining, wait, reset)
	d.Overflow = verdict >= lua.Shared
	return d
}
