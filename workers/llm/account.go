package llm

import (
	"cmp"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// account decides what a good response means for an attempt: what is charged to budgets, nil as much as was reserved, and what was used of a
// model, nil nothing.
//
// A response that reports its usage is charged it, whether the request names a model or not. A response without usage is charged its estimate if
// it is of a model, and else nothing. A batch has limits of its own, so it is charged nothing.
//
// A response whose model still works, such as one in the background, is charged what was reserved. The first later response that reports the usage
// of its id is charged the rest: see [charges]. A request that asks no model, such as that GET, is charged for an id once.
func (w *Worker) account(a *shaper.Attempt, r *request, s spent) (charged shaper.Units, used *shaper.Use) {
	now := time.Now()
	model := w.config.rowOf(r.model, s.model)
	switch {
	case s.batch, !s.reported && r.asks != asksModel && !s.isOpen, !s.reported && r.asks == asksNothing:
		return shaper.Units{}, nil
	case s.reported:
		earlier := w.learned.settles(s.id, a.Caller, now)
		if earlier.isSettled && r.asks == asksNothing {
			return shaper.Units{}, nil
		}
		if earlier.request != nil && r.asks == asksNothing {
			model = w.config.rowOf(earlier.request.model, s.model)
			w.learned.note(earlier.request, s.charged)
		}
		charged, used = beyond(s.charged, earlier.charged), s.use(w.config.API, model)
		used.Input, used.Output = max(used.Input-earlier.used.Input, 0), max(used.Output-earlier.used.Output, 0)
	case s.isOpen && !s.reported:
		if charged = s.charged; charged != nil { // a stream that was cut
			used = s.use(w.config.API, model)
		}
		reserved := cmp.Or(charged.String(), a.Reserved.String(), w.config.estimate(r, w.learned).String())
		w.learned.owes(s.id, owed{request: r, charged: shaper.ParseUnits(reserved), used: deref(used), at: now, caller: a.Caller})
		if used == nil {
			return nil, nil
		}
	default:
		charged, used = s.charged, s.use(w.config.API, model)
	}
	w.metrics.count(a.Bucket, w.learned.nameOf(model, a.Caller), s, a.Reserved)
	return charged, used
}

func deref(use *shaper.Use) shaper.Use {
	if use == nil {
		return shaper.Use{}
	}
	return *use
}

// beyond is what units have beyond others.
func beyond(units, others shaper.Units) shaper.Units {
	rest := shaper.Units{}
	for unit, n := range units {
		rest[unit] = max(n-others[unit], 0)
	}
	return rest
}
