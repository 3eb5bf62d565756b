package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// overrideTries is how often a change is tried again because another change came first.
const overrideTries = 20

// LimitInfo is a configured limit, the override of an operator, and the effective limit.
type LimitInfo struct {
	Configured Limit // by the effective configuration, which may be of a higher revision
	InForce    Limit
	Override   Patch  // the operator's change
	Rev        string // changes with InForce, in all processes alike
}

// Limits returns the configured limits in their order, and how they are effective now. It takes one round trip per limit.
func (l *Limiter) Limits(ctx context.Context) ([]LimitInfo, error) {
	if !l.calls.Enter() {
		return nil, ErrClosed
	}
	defer l.calls.Leave()
	gates := l.gates.Load()
	infos := make([]LimitInfo, len(gates.order))
	for i, g := range gates.order {
		info, err := g.info(ctx)
		if err != nil {
			return nil, err
		}
		infos[i] = info
	}
	return infos, nil
}

func (g *gate) info(ctx context.Context) (LimitInfo, error) {
	s, err := g.readState(ctx)
	if err != nil {
		return LimitInfo{}, err
	}
	return LimitInfo{Configured: s.configured, InForce: s.limit, Override: s.override, Rev: s.rev}, nil
}

// readState reads the effective state from Redis.
func (g *gate) readState(ctx context.Context) (*state, error) {
	s := g.source.Load()
	s.fresh.Store(false)
	state, err := g.inForce(ctx, time.Now())
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", s.own.Name, err)
	}
	return state, nil
}

// InvalidPatchError says that a change does not fit its limit.
type InvalidPatchError struct {
	Limit string
	Err   error
}

func (e *InvalidPatchError) Error() string { return fmt.Sprintf("limit %q: %v", e.Limit, e.Err) }
func (e *InvalidPatchError) Unwrap() error { return e.Err }

// Override changes a configured limit for all processes at once, until [Limiter.ResetOverride]. It takes precedence over every configuration. A
// setting of an earlier override that p does not name stays changed, also if both come at the same moment. The limit keeps its state: a caller
// that has spent more than a lowered limit allows exceeds it at once. Override returns the effective limit afterwards.
//
// Errors: [ErrUnknownLimit]; [*InvalidPatchError]; an error that is [redisconn.Unavailable], after which the caller may retry. It takes three
// round trips, and two more for each concurrent change.
func (l *Limiter) Override(ctx context.Context, name string, p Patch) (Limit, error) {
	return l.override(ctx, name, func(before Patch) Patch { return before.Merge(p) })
}

// ResetOverride removes the override of a limit, for all processes at once. It returns the effective limit afterwards.
func (l *Limiter) ResetOverride(ctx context.Context, name string) (Limit, error) {
	return l.override(ctx, name, func(Patch) Patch { return Patch{} })
}

func (l *Limiter) override(ctx context.Context, name string, change func(before Patch) Patch) (Limit, error) {
	if !l.calls.Enter() {
		return Limit{}, ErrClosed
	}
	defer l.calls.Leave()
	g, err := l.configured(name)
	if err != nil {
		return Limit{}, err
	}
	written := false
	for tries := 0; !written; tries++ {
		if tries == overrideTries {
			return Limit{}, fmt.Errorf("limit %q: others changed it %d times meanwhile: change it again", name, tries)
		}
		before, err := g.readState(ctx)
		if err != nil {
			return Limit{}, err
		}
		text, err := OverrideText(before.configured, change(before.override))
		if err != nil {
			return Limit{}, err
		}
		if written, err = l.writeOverride(ctx, g, name, text, before.rev); err != nil {
			return Limit{}, fmt.Errorf("limit %q: %w", name, err)
		}
	}
	after, err := g.readState(ctx)
	if err != nil {
		return Limit{}, err
	}
	return after.limit, nil
}

// writeOverride reports whether the change was written. It is not written if the limit was
// changed since rev.
func (l *Limiter) writeOverride(ctx context.Context, g *gate, name, text, rev string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	defer cancel()
	written := false
	err := l.breaker.Run(func() error {
		reply, err := lua.Override.Run(ctx, l.redis, nil, []string{g.conf}, name, text, rev)
		if err != nil {
			return err
		}
		r := lua.NewReader(reply)
		written = r.Int() != 0
		return r.Err()
	})
	return written, err
}

// Reconfigure replaces the configured limits, as after a reload. The first process that does so changes the effective limits for all processes,
// unless a configuration of a higher revision is effective. Limits keep their states and their overrides. If a limit is not valid, nothing
// changes. If Redis does not respond, Reconfigure returns an error, and the next question writes the change.
func (l *Limiter) Reconfigure(ctx context.Context, limits []Limit, revision int64) error {
	if !l.calls.Enter() {
		return ErrClosed
	}
	defer l.calls.Leave()
	if err := l.setLimits(limits, revision); err != nil {
		return err
	}
	var errs []error
	for _, g := range l.gates.Load().order {
		_, err := g.info(ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
