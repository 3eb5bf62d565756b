package llm

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of what is remembered of responses.
const (
	rememberedIDs = 10_000 // the oldest one goes first
	idBytes       = 200    // of an id; a longer one is not remembered
)

// chargeCounts is how long a charge is taken to be in the windows of budgets: a minute, as providers limit tokens. A later response is charged in
// full, because the charge of the request that began it has left such a window.
const chargeCounts = time.Minute

// charges remembers what has been charged to responses, by their id. The zero value is ready. It is not safe for concurrent use.
type charges struct {
	byID map[string]owed
	ids  []string // of byID, as a ring
	next int      // where the oldest one is, once the ring is full
}

// owed is what has been charged to a response.
type owed struct {
	request   *request     // that began it; nil: another process sent it, or nothing is known
	charged   shaper.Units // so far
	used      shaper.Use   // as far as it was counted
	at        time.Time    // of the last charge
	isSettled bool         // the usage was reported, and charged
}

func (c *charges) set(id string, o owed) {
	if id == "" || len(id) > idBytes {
		return
	}
	if _, known := c.byID[id]; !known {
		switch {
		case c.byID == nil:
			c.byID = map[string]owed{}
			fallthrough
		case len(c.ids) < rememberedIDs:
			c.ids = append(c.ids, id)
		default:
			delete(c.byID, c.ids[c.next])
			c.ids[c.next] = id
			c.next = (c.next + 1) % rememberedIDs
		}
	}
	c.byID[id] = o
}

// owes remembers the charge of a response. Several requests of one response, such as those of a run, add up until its usage is reported.
func (l *Learned) owes(id string, o owed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, known := l.charges.byID[id]; known && !before.isSettled && !o.isSettled && o.at.Sub(before.at) < chargeCounts {
		for unit, n := range before.charged {
			o.charged[unit] += n
		}
		o.request = before.request
		o.used.Input, o.used.Output = o.used.Input+before.used.Input, o.used.Output+before.used.Output
	}
	l.charges.set(id, o)
}

// settles returns what was charged to a response before, as far as that counts still, and remembers that its usage is charged now.
func (l *Learned) settles(id string, now time.Time) owed {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.charges.byID[id]
	l.charges.set(id, owed{isSettled: true, at: now})
	if now.Sub(before.at) >= chargeCounts {
		before.charged = nil
	}
	return before
}
