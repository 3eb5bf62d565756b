package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Enable lets a disabled flow admit and send jobs again, at its pace, and reports whether it was disabled. A pause remains, and so do its dead
// letters: see [Flow.RedriveDisabled]. It takes as many round trips as Pause.
func (f Flow) Enable(ctx context.Context) (was bool, err error) {
	t, err := f.target(ctx)
	if err != nil {
		return false, err
	}
	change, err := f.op.changeTarget(ctx, t, metrics.ActionEnable)
	if err != nil {
		return false, err
	}
	before := "enabled"
	if change.before.Disabled != nil {
		before = change.before.Disabled.String()
	}
	f.op.noteTargetIf(ctx, change.isChanged, t, metrics.ActionEnable, "before", before, "after", "enabled")
	return change.before.Disabled != nil, nil
}

// RedriveDisabled redrives, oldest first, the dead letters that the flow has because it was disabled ([shaper.CauseFlowDisabled]). It ends when all
// are moved or no more can be moved for now: see [DeadLetters.RedriveFound]. It examines the flow's own dead letters, and the dead letters of all
// flows of the bucket since the last call. One round trip for each 250 of the latter.
func (f Flow) RedriveDisabled(ctx context.Context) (Redriven, error) {
	var sum Redriven
	t, err := f.target(ctx)
	if err != nil {
		return sum, err
	}
	spans, err := f.op.disabledDeaths(ctx, t)
	if err != nil {
		return sum, err
	}
	dead := f.op.Bucket(f.bucket).Dead()
	for _, s := range spans {
		filter := DeadFilter{Cause: shaper.CauseFlowDisabled, Flow: f.flow, Group: f.group, Since: time.UnixMicro(s.first), Until: time.UnixMicro(s.last + 1)}
		for cursor, again := "", true; again; again = cursor != "" {
			change, err := dead.RedriveFound(ctx, filter, cursor, false)
			sum.Add(change.Redriven)
			if cursor = change.Next; err != nil || change.Waiting {
				return sum, err
			}
		}
	}
	return sum, nil
}

// deathsAtOnce is how many dead letters one script of disabledDeaths examines.
const deathsAtOnce = 250

// span is the period of some dead letters' deaths, in microseconds, inclusive.
type span struct{ first, last int64 }

// disabledDeaths returns when the dead letters died that a flow has because it was disabled, earliest first.
func (o *Operator) disabledDeaths(ctx context.Context, t target) ([]span, error) {
	for {
		reply, err := o.store.Run(ctx, lua.DisabledDeaths, t.keys.Of(lua.DisabledDeaths), t.name, t.keys.Levels, shaper.CauseFlowDisabled, deathsAtOnce, store.ScriptBytes)
		if err != nil {
			return nil, fmt.Errorf("bucket %q: %w", t.bucket, err)
		}
		r := lua.NewReader(reply)
		more := r.Int() != 0
		var spans []span
		for r.Left() > 0 {
			spans = append(spans, span{r.Int(), r.Int()})
		}
		if r.Err() != nil {
			return nil, fmt.Errorf("bucket %q: script disabled_deaths: %w", t.bucket, r.Err())
		}
		if !more {
			return spans, nil
		}
	}
}
