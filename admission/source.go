package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
)

// schemaVersion is the schema of a limit's conf in Redis. A program leaves a newer schema
// alone.
const schemaVersion = 1

// source is a configured limit: its configuration, and its effective state.
type source struct {
	own      Limit
	text     string // of own, as conf has it
	revision int64
	started  int64 // of the first write, see lua/configure.lua; of the caller that holds turn

	turn   chan struct{} // held by the caller that reads or writes the conf
	fresh  atomic.Bool   // the conf in Redis was written, and read since its last known change
	wrote  atomic.Bool   // the conf in Redis was written
	latest atomic.Pointer[state]
}

// state is an effective limit.
type state struct {
	configured Limit // by the effective configuration, which may differ from ours
	limit      Limit
	override   Patch  // the operator's change
	rev        string // limits_rev
	base       *compiledLimit
	tiers      map[string]*compiledLimit
}

func newState(configured, limit Limit, override Patch, rev string) *state {
	s := &state{configured: configured, limit: limit, override: override, rev: rev, base: compile(limit, "", rev)}
	s.tiers = make(map[string]*compiledLimit, len(limit.Tiers))
	for tier := range limit.Tiers {
		s.tiers[tier] = compile(limit, tier, rev)
	}
	return s
}

// forTier returns the limit as it applies to callers of a tier.
func (s *state) forTier(tier string) *compiledLimit {
	if f, ok := s.tiers[tier]; ok {
		return f
	}
	return s.base
}

// newSource returns a limit before its first read from Redis, with the operator's last known change, if it fits.
func newSource(limit Limit, revision int64, override Patch) (*source, error) {
	limit = limit.WithDefaults()
	if err := limit.Validate(); err != nil {
		return nil, fmt.Errorf("limit %q: %w", limit.Name, err)
	}
	text, err := EncodeLimits([]Limit{limit})
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", limit.Name, err)
	}
	s := &source{own: limit, text: text, revision: revision, turn: make(chan struct{}, 1)}
	inForce, err := limit.With(override)
	if err != nil {
		inForce, override = limit, Patch{}
	}
	s.latest.Store(newState(limit, inForce, override, ""))
	return s, nil
}

// inForce returns the effective limit, as far as it is known. With an error it is the last known one.
func (g *gate) inForce(ctx context.Context, start time.Time) (*state, error) {
	s := g.source.Load()
	if s.fresh.Load() {
		return s.latest.Load(), nil
	}
	err := g.refresh(ctx, s, start.Add(g.limiter.timeout))
	return s.latest.Load(), err
}

// outdated marks a state as no longer effective.
func (g *gate) outdated(old *state) {
	s := g.source.Load()
	if s.latest.Load() == old {
		s.fresh.Store(false)
	}
}

// unconfigured notes that the conf is missing in Redis.
func (g *gate) unconfigured(rev string) {
	if s := g.source.Load(); s != nil && s.latest.Load().rev == rev {
		s.wrote.Store(false)
		s.fresh.Store(false)
	}
}

// refresh writes the conf if that was not done yet, and reads the effective limit. Concurrent callers wait for the first, no longer than their
// ctx.
func (g *gate) refresh(ctx context.Context, s *source, until time.Time) error {
	if g.limiter.breaker.Shaky() && len(s.turn) > 0 {
		return redisconn.ErrBreakerOpen
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-waiting.Done():
		return fmt.Errorf("wait for the limit in force: %w", context.Cause(waiting))
	}
	if s.fresh.Load() {
		return nil
	}
	// A caller that gives up is no sign that Redis fails.
	ctx, cancelRun := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancelRun()
	return g.limiter.breaker.Run(func() error {
		err := errNoConf
		for range 2 { // Redis may have lost it since it was written
			if err = g.write(ctx, s); err == nil {
				err = g.read(ctx, s)
			}
			if !errors.Is(err, errNoConf) {
				break
			}
		}
		return err
	})
}

// write writes the conf, once.
func (g *gate) write(ctx context.Context, s *source) error {
	if s.wrote.Load() {
		return nil
	}
	reply, err := lua.Configure.Run(ctx, g.limiter.redis, nil, []string{g.conf}, schemaVersion, s.revision, "", "", g.limiter.owns, redisconn.ProcessName(), s.started, FieldLimits, s.text)
	if err != nil {
		return err
	}
	r := lua.NewReader(reply)
	code, schema, revision := r.Int(), r.Int(), r.Int()
	if r.Err() != nil {
		return fmt.Errorf("script configure: %w", r.Err())
	}
	switch code {
	case 1:
		g.limiter.log.WarnContext(ctx, "a newer configuration is in force and is obeyed",
			"limit", s.own.Name, "own_revision", s.revision, "revision", revision)
	case 0:
		s.started = r.Int()
		if changed := r.Int(); changed > 0 {
			g.limiter.log.WarnContext(ctx, "this process changed the limit in force", "limit", s.own.Name, "after", s.text)
		}
	case 2:
		return fmt.Errorf("its data has schema %d, this program knows %d: use a newer program", schema, schemaVersion)
	}
	s.wrote.Store(true)
	return nil
}

// errNoConf says that the conf disappeared between two calls.
var errNoConf = errors.New("its configuration disappeared from Redis: ask again")

// read reads the effective limit.
func (g *gate) read(ctx context.Context, s *source) error {
	conf, err := g.limiter.redis.HGetAll(ctx, g.conf).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", g.conf, err)
	}
	rev := conf[FieldLimitsRev]
	if rev == "" {
		s.wrote.Store(false)
		return errNoConf
	}
	if s.latest.Load().rev != rev {
		state, err := g.decode(ctx, s, conf)
		if err != nil {
			return err
		}
		before := s.latest.Load()
		if by := conf["by"]; before.rev != "" && !reflect.DeepEqual(before.configured, state.configured) && by != redisconn.ProcessName() {
			g.limiter.log.WarnContext(ctx, "another process changed the limit in force", "limit", s.own.Name,
				"before", before.configured.Limit, "after", state.configured.Limit, "by", by)
		}
		s.latest.Store(state)
	}
	s.fresh.Store(true)
	return nil
}

func (g *gate) decode(ctx context.Context, s *source, conf map[string]string) (*state, error) {
	configuredLimits, _, err := DecodeLimits(map[string]string{FieldLimits: conf[FieldLimits]})
	if err != nil {
		return nil, err
	}
	limits, ignored, err := DecodeLimits(conf)
	if err != nil {
		return nil, err
	}
	name := s.own.Name
	configured, limit, override := s.own, s.own, Patch{}
	for i := range limits {
		if limits[i].Name == name {
			configured, limit = configuredLimits[i], limits[i]
		}
	}
	if slices.Contains(ignored, name) {
		g.limiter.log.WarnContext(ctx, "the override of a limit does not fit it any more and is ignored: reset it, or override the limit again", "limit", name)
	} else if text := conf[FieldOverride+name]; text != "" {
		if err := json.Unmarshal([]byte(text), &override); err != nil {
			return nil, fmt.Errorf("read %s: %w", FieldOverride+name, err)
		}
	}
	return newState(configured, limit, override, conf[FieldLimitsRev]), nil
}
