package scripts_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// controlIt pauses, resumes, or changes a bound.
func (m *model) controlIt(t *rapid.T) {
	switch rapid.SampledFrom([]string{"pause", "resume", "resume", "capacity", "in flight", "old configuration"}).Draw(t, "control") {
	case "pause":
		m.pause()
		m.paused = true
	case "resume":
		m.resume()
		m.paused = false
	case "capacity":
		m.s.capacity = rapid.Int64Range(1, 8).Draw(t, "new capacity")
		m.most = max(m.s.capacity, m.unfinished())
		m.control("set", "anna", "capacity", m.s.capacity)
	case "in flight":
		m.s.inFlight = rapid.Int64Range(1, 4).Draw(t, "new in flight")
		m.control("set", "anna", "max_in_flight", m.s.inFlight)
	case "old configuration":
		old := m.s
		old.capacity, old.inFlight, old.revision = 100, 100, -1
		m.configure(old)
	}
}

// purgeIt purges in chunks, with a new job and one that is given back between
// the first and the others.
func (m *model) purgeIt(t *rapid.T) {
	p := purge{
		id: fmt.Sprint("p", nextClaim()), keepLater: rapid.Bool().Draw(t, "keep later"),
		atMost: rapid.IntRange(1, 3).Draw(t, "at most"),
	}
	gone := m.in(isQueued)
	if !p.keepLater {
		gone = m.in(isQueued, isScheduled, isRetrying)
	}
	first := m.purge(p)
	if int(first.removed) > len(gone) {
		t.Fatalf("purged %+v of %v", first, gone)
	}
	fresh := entry{id: fmt.Sprint("fresh", nextClaim()), content: "x"}
	if code := m.enqueue(nil, fresh)[0].code; code == 1 {
		m.state[fresh.id], m.content[fresh.id] = isQueued, fresh.content
	}
	if ids := slices.Sorted(maps.Keys(m.held)); len(ids) > 0 && rapid.Bool().Draw(t, "give back") {
		id := rapid.SampledFrom(ids).Draw(t, "id")
		m.settle(outcome{lease: m.held[id], result: returned})
		m.state[id] = isQueued
		m.drop(id)
	}
	if all := m.purgeAll(p); int(all.done) != len(gone) {
		t.Fatalf("purged %+v of %v", all, gone)
	}
	for _, id := range gone {
		m.state[id], m.sched[id] = isCancelled, false
	}
}
