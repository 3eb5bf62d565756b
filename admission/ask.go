package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/redisconn"
)

// ErrUnknownLimit says that no limit of this name is configured.
var ErrUnknownLimit = errors.New("admission: unknown limit")

// staleTries is how often a question is sent while its limit is being changed.
const staleTries = 3

// Ask asks a configured limit whether n requests (1 to [MaxCost]) may pass for a caller, and spends them if so. A refusal spends nothing and is
// no error. It uses the effective limit: the configuration, with the overrides of operators.
//
// Errors: [ErrUnknownLimit]; [*MissingIdentityError], if the identity lacks the dimension that the limit counts by, and the limit refuses such
// callers; an error that is [redisconn.Unavailable], if Redis does not respond and the limit is [Closed]; a cost out of range. An exempt caller
// is admitted, with the source [FromExemption].
func (l *Limiter) Ask(ctx context.Context, name string, id Identity, n int64) (Decision, error) {
	return l.askAs(ctx, name, &caller{tier: id.Tier, id: &id}, n)
}

// AskKey is [Limiter.Ask] for a gateway that names the key itself, whatever the limit counts by. The key may be any text. Redis stores its
// digest, in a domain of its own, so no key collides with an identity of Ask. "" means an unknown caller: the limit's OnMissing decides.
func (l *Limiter) AskKey(ctx context.Context, name, tier, key string, n int64) (Decision, error) {
	return l.askAs(ctx, name, &caller{tier: tier, key: key}, n)
}

// caller is an identity, or a key that a gateway named.
type caller struct {
	tier, key string
	id        *Identity
}

// keyIn is the key under which a limit counts for the caller.
func (c *caller) keyIn(limit *Limit) (string, error) {
	if c.id != nil {
		return limit.Key(*c.id)
	}
	tier := c.tier
	if _, ok := limit.Tiers[tier]; !ok {
		tier = ""
	}
	if c.key == "" {
		return limit.Key(Identity{Tier: tier})
	}
	return givenKey(tier, c.key), nil
}

// name returns the name by which operators know the caller.
func (c *caller) name() string {
	if c.id != nil {
		return c.id.Caller
	}
	return c.key
}

func (l *Limiter) askAs(ctx context.Context, name string, by *caller, n int64) (Decision, error) {
	if !l.calls.Enter() {
		return Decision{}, ErrClosed
	}
	defer l.calls.Leave()
	start := time.Now()
	g, err := l.configured(name)
	if err != nil {
		return Decision{}, err
	}
	d, err := l.askGate(ctx, g, by, n, start)
	l.metrics.observe(name, by.name(), &d, err, start)
	return d, err
}

func (l *Limiter) askGate(ctx context.Context, g *gate, by *caller, n int64, start time.Time) (Decision, error) {
	for range staleTries {
		state, err := g.inForce(ctx, start)
		if err != nil && !redisconn.Unavailable(err) {
			return Decision{}, fmt.Errorf("limit %q: %w", state.limit.Name, err)
		}
		f := state.forTier(by.tier)
		key, keyErr := by.keyIn(&state.limit)
		if keyErr != nil {
			return Decision{}, keyErr
		}
		d, err := l.decide(ctx, g, f, key, n, start, err)
		if !errors.Is(err, errStale) {
			return d, err
		}
		g.outdated(state)
	}
	return Decision{}, fmt.Errorf("limit %q: it changed %d times while it was asked: ask again", g.source.Load().own.Name, staleTries)
}
