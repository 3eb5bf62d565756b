package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/lua"
)

const (
	trimAtMost    = 200 // dead letters dropped by one script
	trimMostBytes = 1 << 20
	trimTurn      = time.Second // of one look, after which the patrol continues
)

// How full of dead letters a bucket is.
const (
	deadRoom   = iota
	deadNearly // 80 %
	deadFull
)

// deaths records that jobs became dead letters, so that the next patrol checks their number.
type deaths struct {
	some      atomic.Bool    // since the last trim
	callbacks *callbackMover // some of the dead letters may have callbacks
}

func (s *deaths) note(n int64) {
	if n > 0 {
		s.some.Store(true)
		s.callbacks.wake()
	}
}

// trimDead drops the dead letters whose retention has ended. If the bucket drops rather than refuses, it also drops those above its bounds. It logs a
// warning before there are too many.
func (p *bucketPatrol) trimDead(ctx context.Context) {
	var old, extra int64
	for began := time.Now(); ; {
		var more, drops bool
		var there, bytes, most, mostBytes int64
		err := p.run(ctx, p.shared, lua.TrimDead, nil, func(r *lua.Reader) {
			old += r.Int()
			extra += r.Int()
			more = r.Int() == 1
			there, bytes, most, mostBytes, drops = r.Int(), r.Int(), r.Int(), r.Int(), r.Int() == 1
		}, trimAtMost, trimMostBytes)
		if err == nil && more && time.Since(began) < trimTurn {
			continue
		}
		if err != nil || more {
			p.deaths.some.Store(true) // the next patrol continues
		}
		if err == nil {
			p.warnOfDead(ctx, there, bytes, most, mostBytes, drops)
		} else if ctx.Err() == nil {
			p.log.ErrorContext(ctx, "dead letters were not looked at", "error", err)
		}
		break
	}
	if old+extra > 0 {
		p.log.InfoContext(ctx, "dead letters were dropped", "retention_ended", old, "too_many", extra)
	}
}

// warnOfDead logs when a bucket becomes nearly full of dead letters, when it is full, and when it has room again.
func (p *bucketPatrol) warnOfDead(ctx context.Context, there, bytes, most, mostBytes int64, drops bool) {
	is, before := max(fullness(there, most), fullness(bytes, mostBytes)), p.deadFull
	if is == before || is < before && (!isRoomy(there, most) || !isRoomy(bytes, mostBytes)) {
		return
	}
	p.deadFull = is
	args := []any{"dead_letters", there, "dead_capacity", most, "bytes", bytes, "dead_bytes", mostBytes}
	switch {
	case is == deadFull && drops:
		p.log.WarnContext(ctx, "the bucket has as many dead letters as it may: the oldest are dropped", args...)
	case is == deadFull:
		p.log.ErrorContext(ctx, "the bucket has as many dead letters as it may and refuses jobs: redrive or drop some", args...)
	case is == deadNearly && drops:
		p.log.WarnContext(ctx, "the bucket has 80 % of the dead letters that it may have: above them the oldest are dropped", args...)
	case is == deadNearly:
		p.log.WarnContext(ctx, "the bucket has 80 % of the dead letters that it may have, and then refuses jobs: redrive or drop some", args...)
	default:
		p.log.InfoContext(ctx, "the bucket has room for dead letters again", args...)
	}
}

// isRoomy reports whether a bucket has room again after a warning: less than 70 %, so that single dead letters do not cause a log line each.
func isRoomy(there, most int64) bool { return most == 0 || there < most-most/10*3 }

func fullness(there, most int64) int {
	switch {
	case most == 0 || there < most-most/5:
		return deadRoom
	case there < most:
		return deadNearly
	}
	return deadFull
}

const resultsAtMost = 500 // dropped by one script

// trimResults drops the results whose retention has ended.
func (p *bucketPatrol) trimResults(ctx context.Context) {
	for began := time.Now(); time.Since(began) < trimTurn; {
		dropped, err := p.shared.Run(ctx, lua.TrimResults, p.Keys.Of(lua.TrimResults), resultsAtMost)
		if err != nil && ctx.Err() == nil {
			p.log.ErrorContext(ctx, "results were not looked at", "error", err)
		}
		if n, ok := dropped.(int64); err != nil || !ok || n < resultsAtMost {
			return
		}
	}
}
