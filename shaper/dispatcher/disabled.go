package dispatcher

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	disabledAtOnce  = 10          // disabled flows per look
	disabledAtMost  = 200         // entries that one script turns into dead letters
	disabledTurn    = time.Second // of one patrol, which then continues elsewhere
	disabledRecheck = 5 * time.Second
)

// emptyDisabled turns the waiting jobs of disabled flows into dead letters, for up to disabledTurn.
func (p *bucketPatrol) emptyDisabled(ctx context.Context) {
	if !p.HasFlows() {
		return
	}
	for began := time.Now(); time.Since(began) < disabledTurn; {
		more, err := p.emptySomeDisabled(ctx, began)
		if err != nil && ctx.Err() == nil {
			p.log.ErrorContext(ctx, "disabled flows were not looked at", "error", err)
		}
		if !more || err != nil {
			return
		}
	}
	p.deaths.some.Store(true) // the next patrol continues
}

// emptySomeDisabled processes the disabled flows that are due, and reports whether there were any.
func (p *bucketPatrol) emptySomeDisabled(ctx context.Context, began time.Time) (some bool, err error) {
	latest := p.clock.latest(time.Now())
	if latest == 0 {
		return false, nil
	}
	flows, err := p.due(ctx, p.Keys.Disabled(), latest, disabledAtOnce)
	if err != nil {
		return false, err
	}
	for _, flow := range flows {
		dead := int64(0)
		for left := int64(1); left > 0 && time.Since(began) < disabledTurn; {
			err := p.run(ctx, p.shared, lua.EmptyDisabled, []string{flow}, func(r *lua.Reader) {
				dead += r.Int()
				left = r.Int()
			}, p.Levels(), flow, disabledAtMost, store.ScriptBytes, disabledRecheck.Microseconds(), shaper.CauseFlowDisabled)
			if err != nil {
				return false, err
			}
		}
		if dead > 0 {
			p.deaths.note(dead)
			p.store.Metrics.CountGivenUp(p.Name, shaper.CauseFlowDisabled, dead)
			p.log.WarnContext(ctx, "jobs of a disabled flow are dead", append(p.flowLabel(flow), "count", dead, "cause", shaper.CauseFlowDisabled)...)
		}
	}
	return len(flows) > 0, nil
}
