package scripts_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// batchModel is a bucket with batches: which leases there are, and which of them are one request.
type batchModel struct {
	*rig
	t       *rapid.T
	limit   int64 // of requests in flight
	put     int
	settled map[string]bool
	held    []lease
	slots   []int64 // of requests
}

func (m *batchModel) enqueueSome() {
	for range rapid.IntRange(1, 9).Draw(m.t, "jobs") {
		e := entry{id: fmt.Sprint("j", m.put), agrees: rapid.SampledFrom([]string{"", "", "", "x", "!"}).Draw(m.t, "agrees")}
		if m.withFlows() > 0 {
			e.flow = rapid.SampledFrom([]string{"f", "g"}).Draw(m.t, "flow")
		}
		e.priority = rapid.SampledFrom([]int{0, 0, 1}).Draw(m.t, "priority")
		if rapid.IntRange(0, 5).Draw(m.t, "due") == 0 {
			e.due = "+500000"
		}
		m.put++
		m.putEach(e)
	}
}

func (m *batchModel) claimSome() {
	m.pass(second)
	a := ask{claim: fmt.Sprint("claim", nextClaim()), want: int64(rapid.IntRange(1, 6).Draw(m.t, "want")), lease: 3600 * second}
	if m.withFlows() == 0 {
		first := m.claim(a)
		if again := m.claim(a); again.together() != first.together() { // the answer was lost
			m.t.Fatalf("asked again it answers %q, before %q", again.together(), first.together())
		}
		m.note(first)
		return
	}
	of := m.reserve(6, 200_000)
	if len(of.flows)+len(of.groups) == 0 {
		return
	}
	m.note(m.claimFlows(a, of))
}

func (m *batchModel) note(c claimed) {
	m.held = append(m.held, c.jobs...)
	for i, job := range c.jobs {
		if i == 0 || job.batch == 0 || job.batch != c.jobs[i-1].batch {
			m.slots = append(m.slots, job.slot)
		}
	}
}

// some takes some of the leases.
func (m *batchModel) some(what string) (some []lease) {
	rest := m.held[:0:0]
	for _, l := range m.held {
		if rapid.Bool().Draw(m.t, what) {
			some = append(some, l)
		} else {
			rest = append(rest, l)
		}
	}
	m.held = rest
	return some
}

func (m *batchModel) settleSome() {
	some := m.some("settle")
	if len(some) == 0 {
		return
	}
	result := rapid.SampledFrom([]int{done, done, retry, dead, returned}).Draw(m.t, "result")
	m.settleAll(result, some...)
	for _, l := range some {
		m.settled[l.id] = result == done
		must.Be(m.t, m.settle(outcome{lease: l, result: done})[0], 0, "%s was settled twice", l.id)
	}
}

func (m *batchModel) crash() {
	some := m.some("crash")
	ids := make([]string, len(some))
	for i, l := range some {
		ids[i] = l.id
	}
	m.end(ids...)
	m.sweep(sweep{pardon: rapid.Bool().Draw(m.t, "outage")})
	m.sweep(sweep{none: true, flowCursor: "0", cursor: "0"})
}

func (m *batchModel) check() {
	requests := map[string]bool{}
	for _, l := range m.held {
		name := l.id
		if l.batch != 0 {
			name = fmt.Sprint("#", l.batch)
		}
		requests[name] = true
	}
	b := m.inspect()
	if b.inFlight != int64(len(m.held)) || b.requests != int64(len(requests)) {
		m.t.Fatalf("%d jobs and %d requests are in flight, want %d and %d", b.inFlight, b.requests, len(m.held), len(requests))
	}
	if b.requests > m.limit {
		m.t.Fatalf("%d requests are in flight, more than %d", b.requests, m.limit)
	}
	if m.pool != "" && m.kept().inFlight != b.requests {
		m.t.Fatalf("the pool counts %d requests, want %d", m.kept().inFlight, b.requests)
	}
	var ofFlows int64
	for _, key := range []string{"flows", "groups"} {
		ofFlows = 0
		for name, text := range m.hash(key) {
			inFlight, followers := inFlightOf(m.t, text)
			if inFlight < 0 || followers < 0 || followers > 0 && followers >= inFlight {
				m.t.Fatalf("%s has %q", name, text)
			}
			ofFlows += inFlight - followers
		}
		if m.withFlows() > 0 && (key == "flows" || m.hasGroups) && ofFlows != b.requests {
			m.t.Fatalf("the %s count %d requests, want %d", key, ofFlows, b.requests)
		}
	}
	// Every job is in one place.
	var inPlaces []string
	for _, flow := range m.flowNames() {
		for i, place := range m.names().Places(flow) {
			if i < 4 {
				inPlaces = append(inPlaces, m.c.LRange(m.ctx, place, 0, -1).Val()...)
			} else {
				inPlaces = append(inPlaces, m.c.ZRange(m.ctx, place, 0, -1).Val()...)
			}
		}
	}
	for _, key := range []string{"leases", "dead"} {
		inPlaces = append(inPlaces, m.members(key)...)
	}
	var want []string
	for n := range m.put {
		if id := fmt.Sprint("j", n); !m.settled[id] {
			want = append(want, id)
		}
	}
	slices.Sort(inPlaces)
	slices.Sort(want)
	if !slices.Equal(inPlaces, want) {
		m.t.Fatalf("the jobs are %v, want %v", inPlaces, want)
	}
}

func (m *batchModel) flowNames() []string {
	switch {
	case m.hasGroups:
		return []string{path("", "f"), path("", "g")}
	case m.hasFlows:
		return []string{"f", "g"}
	}
	return []string{""}
}

// inFlightOf reads the text of a flow.
func inFlightOf(t tb, text string) (inFlight, followers int64) {
	var slot, frac, turn, unfinished, scheduled int64
	var rate, places string
	if _, err := fmt.Sscan(text, &slot, &frac, &rate, &turn, &unfinished, &scheduled, &inFlight, &places); err != nil {
		t.Fatalf("a flow has %q: %v", text, err)
	}
	for i := range places {
		if places[i] == '+' {
			if _, err := fmt.Sscan(places[i+1:], &followers); err != nil {
				t.Fatalf("a flow has %q: %v", text, err)
			}
		}
	}
	return inFlight, followers
}

// Whatever happens, what is in flight is counted in requests, no bound is passed, and every job is in one place.
func TestBatchesKeepTheirPromises(t *testing.T) {
	t.Parallel()
	const limit, rate = 4, 10
	s := settings{rateCount: rate, inFlight: limit, capacity: 10_000}
	for _, c := range []struct {
		name      string
		configure func(r *rig)
	}{
		{"flat", func(r *rig) { r.configure(s) }},
		{"flows", func(r *rig) { r.configureFlows(s, flowSettings{inFlight: 3}) }},
		{"groups", func(r *rig) { r.configureGroups(s, flowSettings{}, flowSettings{inFlight: 3}) }},
		{"pool", func(r *rig) {
			r.pool = r.name + "-pool"
			r.configure(s)
			r.configurePool(poolSettings{rateCount: rate, inFlight: limit})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBothForLong(t, func(t *testing.T, base *rig) {
				rapid.Check(t, func(rt *rapid.T) {
					r := base.fresh(rt, fmt.Sprint("b", nextClaim()))
					c.configure(r)
					r.batches(int64(rapid.IntRange(1, 5).Draw(rt, "size")), 1000, rapid.SampledFrom([]int64{0, 0, second}).Draw(rt, "wait"))
					r.claim0()
					m := &batchModel{rig: r, t: rt, limit: limit, settled: map[string]bool{}}
					rt.Repeat(map[string]func(*rapid.T){
						"enqueue": func(*rapid.T) { m.enqueueSome() },
						"claim":   func(*rapid.T) { m.claimSome() },
						"settle":  func(*rapid.T) { m.settleSome() },
						"crash":   func(*rapid.T) { m.crash() },
						"":        func(*rapid.T) { m.check() },
					})
					slices.Sort(m.slots)
					checkWindows(rt, m.slots, settings{rateCount: rate, ratePer: second, burst: 1})
				})
			})
		})
	}
}
