package llm

import "github.com/tundish-io/tundish/shaper"

// account sets what a good response charges to budgets (nil: what was reserved) and counts as use of a model (nil: none), and to which response both
// belong.
//
// A response that reports its usage is charged it, whether or not the request names a model. A response without usage is charged its estimate if a model
// gave it, otherwise nothing. A batch has limits of its own, so it is charged nothing.
//
// A response whose model still works, such as a background response, is charged what was reserved. Redis knows by the id of the response which requests
// were charged. The first outcome that reports the usage settles them, whichever process sends it: see [shaper.Response].
func (w *Worker) account(a *shaper.Attempt, ask *Ask, s spent, outcome *shaper.Outcome) {
	r := ask.request
	model := w.config.rowOf(r.model, s.model)
	isCounted := true
	switch {
	case s.isBatch(), !s.reported && r.asks != asksModel && !s.isOpen, !s.reported && r.asks == asksNothing,
		s.reported && r.asks == asksNothing && !s.isPolled() && s.id == "":
		outcome.Used, outcome.Use = shaper.Units{}, nil
		return
	case s.reported && r.asks == asksNothing:
		var of *request
		if of, isCounted = w.learned.ends(s.id, a.Caller); of != nil {
			model = w.config.rowOf(of.model, s.model)
			w.learned.note(of, s.charged)
		}
		isCounted = isCounted && s.isPolled()
		outcome.Used, outcome.Use = s.charged, s.use(w.config.API, model)
	case s.isOpen && !s.reported:
		if outcome.Used = s.charged; s.charged != nil { // a stream that was cut
			outcome.Use = s.use(w.config.API, model)
		}
		w.learned.begins(s.id, a.Caller, r)
		isCounted = outcome.Use != nil
	default:
		outcome.Used, outcome.Use = s.charged, s.use(w.config.API, model)
	}
	outcome.Response = w.roleOf(r, &s, model)
	if outcome.Use != nil {
		outcome.Use.Asked = ask.Asked
	}
	if isCounted {
		w.metrics.count(a.Bucket, w.learned.nameOf(model, a.Caller), ask.Asked, s, a.Reserved)
	}
}
