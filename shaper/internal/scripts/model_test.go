package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// model is what a bucket should hold. Which job a claim gets is not its
// business, only that a job is where its history says.
type model struct {
	*rig
	s        settings
	state    map[string]int64 // of every job that was ever admitted
	held     map[string]lease
	old      []lease // leases that have ended
	last     map[string]string
	content  map[string]string
	sched    map[string]bool // counts against scheduled_capacity
	crashes  map[string]int
	lone     map[string]string // dispatcher -> the job on its last chance that it got, while it holds it
	admitted int
	paused   bool
	most     int64 // unfinished jobs: the capacity, or more where that was lowered
}

func (m *model) in(states ...int64) (ids []string) {
	for id, state := range m.state {
		if slices.Contains(states, state) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// checkLone notes which job on its last chance a dispatcher got, at most one at
// a time, and which were parked instead.
func (m *model) checkLone(t *rapid.T, dispatcher string, c claimed, again bool) {
	for i, job := range c.jobs {
		must.Be(t, (m.crashes[job.id] == lastChance), (c.lone == int64(i+1)), "%s has crashed %d times; %d of %q is lone", job.id, m.crashes[job.id], c.lone, c.ids())
	}
	if c.lone > 0 {
		id := c.jobs[c.lone-1].id
		if held, holds := m.lone[dispatcher]; holds && (!again || held != id) {
			t.Fatalf("%s got %s while it holds %s", dispatcher, id, held)
		}
		m.lone[dispatcher] = id
	}
	for _, id := range m.in(isQueued) {
		if m.crashes[id] == lastChance && m.job(id).state == isRetrying {
			m.state[id] = isRetrying
		}
	}
}

// unfinished are the jobs that count against capacity.
func (m *model) unfinished() (n int64) {
	for _, id := range m.in(isQueued, isInFlight, isRetrying) {
		if !m.sched[id] {
			n++
		}
	}
	return n
}

func (m *model) scheduled() (n int64) {
	for _, id := range m.in(isQueued, isScheduled, isInFlight, isRetrying) {
		if m.sched[id] {
			n++
		}
	}
	return n
}

func (m *model) put(t *rapid.T) {
	id := fmt.Sprint("j", rapid.IntRange(0, 14).Draw(t, "id"))
	later := rapid.Bool().Draw(t, "later")
	e := entry{id: id, content: rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "content")}
	if later {
		e.due = "+1000000"
	}
	code := m.enqueue(nil, e)[0].code
	state, known := m.state[id]
	want := int64(1)
	switch {
	case known && m.content[id] != e.content:
		want = 4
	case known && (state < isDone || m.s.dedupe > 0):
		want = 3
	case later && m.scheduled() >= m.s.scheduled:
		want = 8
	case later:
		want = 2
	case m.unfinished() >= m.s.capacity:
		want = 7
	}
	if known && state >= isDone && m.s.dedupe < 0 && want == 4 { // forgotten: a new job
		want = 1
		if later {
			want = 2
		}
		if later && m.scheduled() >= m.s.scheduled {
			want = 8
		} else if !later && m.unfinished() >= m.s.capacity {
			want = 7
		}
	}
	must.Be(t, code, want, "enqueue %s (state %d): code", id, state)
	if code <= 2 {
		m.admitted++
		m.state[id], m.sched[id], m.content[id], m.crashes[id] = code, code == 2, e.content, 0
	}
}

func (m *model) claimSome(t *rapid.T) {
	dispatcher := rapid.SampledFrom([]string{"d1", "d2"}).Draw(t, "dispatcher")
	claim := fmt.Sprint("c", nextClaim())
	if m.last[dispatcher] != "" && rapid.Bool().Draw(t, "resend") {
		claim = m.last[dispatcher]
	}
	again := claim == m.last[dispatcher]
	_, holdsLone := m.lone[dispatcher]
	c := m.claim(ask{dispatcher: dispatcher, claim: claim, want: rapid.Int64Range(1, 4).Draw(t, "want"), holdsLone: holdsLone})
	m.checkLone(t, dispatcher, c, again && holdsLone)
	if m.paused && !again && len(c.jobs) > 0 {
		t.Fatalf("claimed %q from a paused bucket", c.ids())
	}
	for _, job := range c.jobs {
		if again {
			if held, ok := m.held[job.id]; ok && held.epoch == job.epoch && held.claim == claim {
				continue
			}
			if m.state[job.id] == isInFlight {
				t.Fatalf("the resent claim got %s, which somebody else holds", job.id)
			}
		}
		switch m.state[job.id] {
		case isQueued, isScheduled, isRetrying:
		default:
			t.Fatalf("claimed %s, which is in state %d", job.id, m.state[job.id])
		}
		m.state[job.id], m.held[job.id] = isInFlight, job
		m.old = slices.DeleteFunc(m.old, job.sameClaim)
	}
	if len(c.jobs) > 0 || again {
		m.last[dispatcher] = claim
	}
	if n := int64(len(m.in(isInFlight))); n > m.s.inFlight && len(c.jobs) > 0 && !again {
		t.Fatalf("%d jobs are in flight, at most %d may be", n, m.s.inFlight)
	}
}

func (m *model) settleOne(t *rapid.T) {
	if len(m.old) > 0 && rapid.Bool().Draw(t, "late") {
		l := rapid.SampledFrom(m.old).Draw(t, "lease")
		must.Be(t, m.settle(outcome{lease: l, result: done})[0], 0, "an old lease of %s was settled", l.id)
		return
	}
	ids := slices.Sorted(maps.Keys(m.held))
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	result := rapid.IntRange(done, returned).Draw(t, "result")
	must.Be(t, m.settle(outcome{lease: m.held[id], result: result, delay: 1000})[0], 1, "the lease of %s was not settled", id)
	m.state[id] = map[int]int64{done: isDone, retry: isRetrying, dead: isDead, returned: isQueued}[result]
	if result != returned {
		m.crashes[id] = 0
	}
	m.sched[id] = m.sched[id] && result != done && result != dead
	m.drop(id)
}

func (m *model) drop(id string) {
	m.old = append(m.old, m.held[id])
	delete(m.held, id)
	maps.DeleteFunc(m.lone, func(_, lone string) bool { return lone == id })
}

func (m *model) lose(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.held))
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	m.end(id)
	s := m.sweep(sweep{})
	m.state[id] = isQueued
	if m.crashes[id]++; m.crashes[id] > lastChance {
		m.state[id], m.sched[id] = isDead, false
	}
	if s.takenBack+s.poison != 1 || (s.poison == 1) != (m.state[id] == isDead) {
		t.Fatalf("swept %+v after %d crashes", s, m.crashes[id])
	}
	m.drop(id)
}

func (m *model) operate(t *rapid.T) {
	id := fmt.Sprint("j", rapid.IntRange(0, 14).Draw(t, "id"))
	state := m.state[id]
	switch rapid.SampledFrom([]string{"cancel", "drop", "redrive"}).Draw(t, "operation") {
	case "cancel":
		m.cancel(id, "")
		if state == isQueued || state == isScheduled || state == isRetrying {
			m.state[id], m.sched[id] = isCancelled, false
		}
	case "drop":
		m.cancel(id, "5")
		if state == isDead {
			m.state[id] = isDropped
		}
	case "redrive":
		room := m.unfinished() < m.s.capacity
		if got := m.redrive(id)[0]; (got == 1) != (state == isDead && room) {
			t.Fatalf("redrive %s (state %d, room %t) = %d", id, state, room, got)
		} else if got == 1 {
			m.state[id], m.crashes[id] = isQueued, 0
		}
	}
}

// check compares all places with the model.
func (m *model) check(t *rapid.T) {
	m.wantBytesOfDead()
	m.wantAttemptsOfJobs()
	b := m.inspect()
	if b.unfinished != m.unfinished() || b.scheduled != m.scheduled() || b.dead != int64(len(m.in(isDead))) ||
		b.inFlight != int64(len(m.in(isInFlight))) || b.later != int64(len(m.in(isScheduled, isRetrying))) {
		t.Fatalf("bucket %+v\nmodel %v", b, m.state)
	}
	if b.unfinished > m.most || b.scheduled > m.s.scheduled {
		t.Fatalf("beyond the bounds: %+v", b)
	}
	list := m.elements(queueKey)
	for id, state := range m.state {
		got := m.job(id).state
		if state >= isDone && m.s.dedupe < 0 {
			state = 0
		}
		must.Be(t, got, state, "%s is in state", id)
		if state == isQueued && !slices.Contains(list, id) {
			t.Fatalf("%s is queued and not in the list", id)
		}
	}
	if s := m.sweep(sweep{none: true, cursor: "0"}); s.missing != 0 || s.repaired != 0 {
		t.Fatalf("swept %+v", s)
	}
}

// Whatever is done in whatever order: every unfinished job is in exactly one
// place, the bounds hold, an old lease has no say, nothing is lost, and a
// dispatcher holds one job on its last chance at most. It is paused, changed and
// purged meanwhile.
func TestModel(t *testing.T) {
	t.Parallel()
	base := realRig(t) // miniredis takes ten times as long
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			rig: base.fresh(rt, fmt.Sprint("m", nextClaim())),
			s: settings{
				rateCount: 50_000, capacity: rapid.Int64Range(1, 8).Draw(rt, "capacity"),
				scheduled: rapid.Int64Range(1, 4).Draw(rt, "scheduled"), inFlight: rapid.Int64Range(1, 4).Draw(rt, "in flight"),
				dedupe: rapid.SampledFrom([]int64{-1, 3600 * second}).Draw(rt, "dedupe"),
			},
			state: map[string]int64{}, held: map[string]lease{}, last: map[string]string{},
			content: map[string]string{}, sched: map[string]bool{}, crashes: map[string]int{}, lone: map[string]string{},
		}
		m.configure(m.s)
		m.obeyAttempts(2, 0)
		m.most = m.s.capacity
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": m.put,
			"claim":   m.claimSome,
			"settle":  m.settleOne,
			"lose":    m.lose,
			"operate": m.operate,
			"control": m.controlIt,
			"purge":   m.purgeIt,
			"wait":    func(*rapid.T) { m.pass(400_000) },
			"":        m.check,
		})
		m.resume()
		m.control("reset", "anna", "max_in_flight")
		// Nothing is lost: all that is not dead comes out.
		for range 200 {
			if m.unfinished()+m.scheduled() == 0 {
				break
			}
			m.pass(second)
			claim := m.claim(ask{dispatcher: "last"})
			for _, job := range claim.jobs {
				m.state[job.id], m.held[job.id] = isInFlight, job
			}
			for _, id := range slices.Sorted(maps.Keys(m.held)) {
				m.settle(outcome{lease: m.held[id], result: done})
				m.state[id], m.sched[id] = isDone, false
				m.drop(id)
			}
		}
		if left := m.in(isQueued, isScheduled, isInFlight, isRetrying); len(left) > 0 {
			rt.Fatalf("never came out: %v", left)
		}
	})
}
