package llm

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of what is remembered of responses.
const (
	rememberedIDs = 10_000 // of all callers
	idBytes       = 200    // of an id; a longer one is not remembered
)

// chargeCounts is how long a charge is taken to be in the windows of budgets: a minute, as providers limit tokens. A later response is charged in
// full, because the charge of the request that began it has left such a window.
const chargeCounts = time.Minute

// charges remembers what has been charged to responses, by their id. A caller has no more than it leaves free: beyond that its own oldest goes. The
// zero value is ready. It is not safe for concurrent use.
type charges struct {
	byID map[string]owed
	ids  map[string][]string // of byID, by caller, the oldest first
}

// owed is what has been charged to a response.
type owed struct {
	request   *request     // that began it; nil: another process sent it, or nothing is known
	charged   shaper.Units // so far
	used      shaper.Use   // as far as it was counted
	at        time.Time    // of the last charge
	caller    string       // who sent the first request of it, by its mark
	isSettled bool         // the usage was reported, and charged
}

func (c *charges) set(id string, o owed) {
	if id == "" || len(id) > idBytes {
		return
	}
	if c.byID == nil {
		c.byID, c.ids = map[string]owed{}, map[string][]string{}
	}
	if before, known := c.byID[id]; known {
		o.caller = before.caller
	} else {
		c.makeRoom(o.caller)
		c.ids[o.caller] = append(c.ids[o.caller], id)
	}
	c.byID[id] = o
}

// makeRoom forgets the oldest id of a caller that has its share, and of the one that has most where none is free.
func (c *charges) makeRoom(caller string) {
	free, held := rememberedIDs-len(c.byID), len(c.ids[caller])
	if free > held || free > 0 && held == 0 {
		return
	}
	if held == 0 {
		for other, ids := range c.ids {
			if len(ids) > len(c.ids[caller]) {
				caller = other
			}
		}
	}
	ids := c.ids[caller]
	delete(c.byID, ids[0])
	if c.ids[caller] = ids[1:]; len(ids) == 1 {
		delete(c.ids, caller)
	}
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

// settles returns what was charged to a response before, as far as that counts still, and remembers that its usage is charged now. caller is who asked.
func (l *Learned) settles(id, caller string, now time.Time) owed {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.charges.byID[id]
	l.charges.set(id, owed{isSettled: true, at: now, caller: caller})
	if now.Sub(before.at) >= chargeCounts {
		before.charged = nil
	}
	return before
}
