package dispatcher

import (
	"context"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// What settle.lua says became of a flow, or of the bucket or pool.
const (
	flowDisabled  = 1
	breakerOpened = 2
	breakerClosed = 3
)

// logScopes logs which flows the outcomes of a batch have disabled, and which circuit breakers they have opened or closed. Only the reply
// of the script that did it says so: of any number of dispatchers one logs it.
func (d *bucketLoop) logScopes(ctx context.Context, flows []string, r *lua.Reader) {
	for r.Err() == nil && r.Left() > 0 {
		what, nth, reason := r.Int(), r.Int(), r.Text()
		if r.Err() != nil || nth < 0 || int(nth) > len(flows) {
			d.log.ErrorContext(ctx, "script settle gave an answer of another form", "error", r.Err())
			return
		}
		label := d.scopeLabel(flows, nth)
		switch what {
		case flowDisabled:
			d.died.Store(true) // the next patrol makes dead letters of what waits
			d.log.ErrorContext(ctx, "a flow was disabled: its receiver is gone, or has not worked for too long; it sends nothing until it is enabled",
				append(label, "reason", reason)...)
		case breakerOpened:
			d.log.WarnContext(ctx, "a circuit breaker opened: its receiver does not work; only a probe leaves now and then", append(label, "reason", reason)...)
		case breakerClosed:
			d.log.WarnContext(ctx, "a circuit breaker closed: its receiver works again", label...)
		}
	}
}

// scopeLabel names what the answers changed, for the log: the nth of some flows, or with 0 the pool, or nothing but the bucket.
func (d *bucketLoop) scopeLabel(flows []string, nth int64) []any {
	switch {
	case nth > 0:
		return d.flowLabel(flows[nth-1])
	case d.Settings.Load().Adapt.Scope == shaper.ScopePool:
		return []any{"pool", d.Keys.Pool}
	default:
		return nil
	}
}

// flowLabel names a flow for the log, by its name in Redis.
func (d *bucketLoop) flowLabel(name string) []any {
	if d.Levels() != codec.LevelsGroups {
		return []any{"flow", name}
	}
	group, flow, _ := codec.SplitPath(name)
	return []any{"group", group, "flow", flow}
}
