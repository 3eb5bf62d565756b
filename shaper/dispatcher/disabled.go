package dispatcher

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	disabledAtOnce  = 10          // disabled flows that one look finds
	disabledAtMost  = 200         // entries that one script makes dead letters of
	disabledTurn    = time.Second // of one patrol, after which it goes on
	disabledRecheck = 5 * time.Second
)

// emptyDisabled makes dead letters of the jobs that wait in disabled flows, for at most a while.
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
	p.deaths.some.Store(true) // the next patrol goes on
}

// emptySomeDisabled looks at the disabled flows whose turn it is, and reports whether there was one.
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
