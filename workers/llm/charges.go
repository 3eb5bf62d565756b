package llm

import "github.com/tundish-io/tundish/shaper"

// Bounds of the responses that are remembered.
const (
	rememberedIDs = 10_000 // of all callers
	maxID         = 200    // bytes of an id; a longer one is not remembered
)

// begun remembers, by the id of the response, the requests that this process has sent and whose usage comes later. A poll that reports the usage updates
// the learned estimates. Redis keeps what was charged: see [shaper.Response]. A caller has at most as many entries as it leaves free; after that its
// oldest entry is dropped. The zero value is ready. It is not safe for concurrent use.
type begun struct {
	byID map[string]*request // nil: the usage was reported
	ids  map[string][]string // of byID, by the caller that was first to have the id, the oldest first
}

func (b *begun) set(id, caller string, r *request) {
	if id == "" || len(id) > maxID {
		return
	}
	if b.byID == nil {
		b.byID, b.ids = map[string]*request{}, map[string][]string{}
	}
	if _, known := b.byID[id]; !known {
		b.makeRoom(caller)
		b.ids[caller] = append(b.ids[caller], id)
	}
	b.byID[id] = r
}

// makeRoom drops the oldest id of a caller that has its share, and of the caller with the most if none is free.
func (b *begun) makeRoom(caller string) {
	free, held := rememberedIDs-len(b.byID), len(b.ids[caller])
	if mayHave(free, held) {
		return
	}
	if held == 0 {
		for other, ids := range b.ids {
			if len(ids) > len(b.ids[caller]) {
				caller = other
			}
		}
	}
	ids := b.ids[caller]
	delete(b.byID, ids[0])
	if b.ids[caller] = ids[1:]; len(ids) == 1 {
		delete(b.ids, caller)
	}
}

// begins remembers the request of a response whose usage comes later, and its caller. A run has several requests: the first one counts.
func (l *LearnedEstimates) begins(id, caller string, r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun.byID[id] == nil {
		l.begun.set(id, caller, r)
	}
}

// ends returns the request of a response, nil if it is not known, and whether this process sees its usage for the first time. caller is the caller of
// the poll.
func (l *LearnedEstimates) ends(id, caller string) (r *request, isFirst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, known := l.begun.byID[id]
	l.begun.set(id, caller, nil)
	return r, !known || r != nil
}

// roleOf returns the relation of a request to the response that reports its usage, or is open: nil if the usage is of that request alone.
func (w *Worker) roleOf(r *request, s *spent, model string) *shaper.Response {
	of := &shaper.Response{ID: s.id}
	switch {
	case s.id == "":
		return nil
	case !s.reported:
		of.Role, of.Model = shaper.ResponseBegins, model
		if s.object != "" && !s.isOfItself() { // a stream of a chat that broke off
			return nil
		}
	case r.asks == asksNothing && s.isPolled():
		of.Role = shaper.ResponsePolled
	case r.asks == asksNothing:
		of.Role = shaper.ResponseReread
	case w.config.API == OpenAI && s.isOfItself() && !s.isSync:
		of.Role, of.Model = shaper.ResponseReported, model
	default:
		return nil
	}
	return of
}
