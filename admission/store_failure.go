package admission

import (
	"context"
	"fmt"
	"time"
)

// away decides a question while Redis is unavailable, by the limit's OnStoreFailure.
func (l *Limiter) away(ctx context.Context, g *gate, f *compiledLimit, key string, n int64, err error) (Decision, error) {
	switch {
	case f.OnStoreFailure == Local:
		l.awayLog.Do(func() {
			l.log.WarnContext(ctx, "Redis is unavailable: limits with on_store_failure = local apply the share of this process",
				"limit", f.Name, "instances", l.presence.instances(), "error", err)
		})
		return l.locals.decide(g, f, key, n, l.presence.instances(), time.Now()), nil
	case f.OnStoreFailure == Open, f.Mode == Shadow:
		l.awayLog.Do(func() {
			l.log.WarnContext(ctx, "Redis is unavailable: limits with on_store_failure = open admit every request", "limit", f.Name, "error", err)
		})
		return f.unasked(Undecided), nil
	}
	return Decision{}, fmt.Errorf("limit %q: %w", f.Name, err)
}
