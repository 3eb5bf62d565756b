package llm

import "github.com/tundish-io/tundish/shaper"

// rememberedIDs bounds the responses that are remembered: the oldest one goes first.
const rememberedIDs = 10_000

// begun remembers the requests that this process has sent and whose usage comes later, by the id of their response: what a poll reports teaches of
// them. What they are charged is in Redis: see [shaper.Response]. The zero value is ready. It is not safe for concurrent use.
type begun struct {
	byID map[string]*request // nil: the usage was reported
	ids  []string            // of byID, as a ring
	next int                 // where the oldest one is, once the ring is full
}

// maxID bounds the bytes of an id that is remembered.
const maxID = 200

func (b *begun) set(id string, r *request) {
	if id == "" || len(id) > maxID {
		return
	}
	if _, known := b.byID[id]; !known {
		switch {
		case b.byID == nil:
			b.byID = map[string]*request{}
			fallthrough
		case len(b.ids) < rememberedIDs:
			b.ids = append(b.ids, id)
		default:
			delete(b.byID, b.ids[b.next])
			b.ids[b.next] = id
			b.next = (b.next + 1) % rememberedIDs
		}
	}
	b.byID[id] = r
}

// begins remembers the request of a response whose usage comes later. Of a run, which has several, the first one counts.
func (l *Learned) begins(id string, r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun.byID[id] == nil {
		l.begun.set(id, r)
	}
}

// ends returns the request of a response, nil if it is not known, and whether this process sees its usage for the first time.
func (l *Learned) ends(id string) (r *request, isFirst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, known := l.begun.byID[id]
	l.begun.set(id, nil)
	return r, !known || r != nil
}

// roleOf is what a request has to do with the response that reports its usage, or is open: nil if the usage is of that request alone.
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
