package scripts_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// modelFlows are the flows of the model.
var modelFlows = []string{"a", "", "a b", "ü", `"<b>\`}

// modelJob is a job as it should be.
type modelJob struct {
	flow, content string
	priority      int
	state         int64
	sched         bool // counts as scheduled
	crashes       int
	order         int64 // of its enqueue, for one that came at once and was never claimed, else 0
	reused        bool  // its id was that of another job: it may stand twice in a list
	purging       bool  // a purge has taken it and not removed it yet
	expires       int64 // see flowModel.clock; 0 never
}

func (j *modelJob) is(states ...int64) bool { return slices.Contains(states, j.state) }
func (j *modelJob) unfinished() bool        { return j.state < isDead }

// flowModel is what a bucket with flows should hold, whatever is done to it.
type flowModel struct {
	*rig
	s      settings
	of     flowSettings
	own    map[string]flowSettings
	flows  []string // by the names that they have in Redis
	jobs   map[string]*modelJob
	held   map[string]lease
	old    []lease
	last   map[string]ask
	lone   map[string]string
	paused bool

	reservations []reserved // what processes were told, it may be long ago
	purging      purge      // the last one
	order        int64
	shift        int64              // from the server's clock to one that never steps
	slots        map[string]*steady // by flow, by group, and "bucket"

	groups    []string // none in a bucket without
	ofGroups  flowSettings
	ownGroups map[string]flowSettings
}

// clock is the time of a clock that never steps.
func (m *flowModel) clock() int64 { return m.now() + m.shift }

// wait lets time pass, step sets the server's clock back.
func (m *flowModel) wait(micros int64) { m.pass(micros) }

func (m *flowModel) step(micros int64) {
	m.reservations = append(m.reservations, m.reserve(1, 20_000)) // a process looks often
	m.pass(-micros)
	m.shift += micros
	for _, job := range m.jobs {
		if job.expires > 0 {
			job.expires += micros
		}
	}
	for _, watch := range m.slots {
		watch.quota = false // what was before the step, Redis knows by the other clock
	}
}

func (m *flowModel) in(states ...int64) (ids []string) {
	for id, job := range m.jobs {
		if job.is(states...) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// count counts unfinished jobs, of a flow or of all ("*").
func (m *flowModel) count(flow string, sched bool) (n int64) {
	for _, job := range m.jobs {
		if job.unfinished() && job.sched == sched && (flow == "*" || flow == job.flow) {
			n++
		}
	}
	return n
}

func (m *flowModel) inFlight(flow string) (n int64) {
	for id := range m.held {
		if m.jobs[id].flow == flow {
			n++
		}
	}
	return n
}

// obeyed are the settings that a flow obeys.
func (m *flowModel) obeyed(flow string) flowSettings { return obeyed(m.of, m.own[flow]) }

func obeyed(f, own flowSettings) flowSettings {
	f.weight, f.paused = 1, own.paused
	for _, one := range []struct{ to, from *int64 }{
		{&f.rateCount, &own.rateCount}, {&f.ratePer, &own.ratePer}, {&f.burst, &own.burst},
		{&f.capacity, &own.capacity}, {&f.inFlight, &own.inFlight}, {&f.weight, &own.weight},
	} {
		if *one.from != 0 {
			*one.to = *one.from
		}
	}
	return f
}

func (m *flowModel) snapshot() snapshot { return m.snap(m.flows...) }

func (m *flowModel) pick(t *rapid.T) string {
	return rapid.SampledFrom(m.flows).Draw(t, "flow")
}

func pickID(t *rapid.T) string { return fmt.Sprint("j", rapid.IntRange(0, 11).Draw(t, "id")) }

func (m *flowModel) reserveSome(t *rapid.T) {
	of := m.reserve(rapid.Int64Range(1, 5).Draw(t, "want"), rapid.SampledFrom([]int64{20_000, 300_000}).Draw(t, "horizon"))
	m.reservations = append(m.reservations, of)
	if len(m.reservations) > 4 {
		m.reservations = m.reservations[1:] // lost
	}
}

func (m *flowModel) claimSome(t *rapid.T) {
	if len(m.reservations) == 0 || rapid.IntRange(0, 3).Draw(t, "reserve") > 0 {
		m.reserveSome(t)
	}
	i := len(m.reservations) - 1
	if rapid.IntRange(0, 3).Draw(t, "which") == 0 {
		i = rapid.IntRange(0, i).Draw(t, "reservation")
	}
	of := m.reservations[i]
	of.turns = slices.Clone(of.turns)
	of.groupTurns = slices.Clone(of.groupTurns)
	if rapid.Bool().Draw(t, "use up") {
		m.reservations = slices.Delete(m.reservations, i, i+1)
	}
	a := ask{dispatcher: rapid.SampledFrom([]string{"d1", "d2"}).Draw(t, "dispatcher"), claim: fmt.Sprint("c", nextClaim())}
	a.want, a.horizon = rapid.Int64Range(1, 6).Draw(t, "jobs"), rapid.SampledFrom([]int64{20_000, 200_000}).Draw(t, "ahead")
	if last := m.last[a.dispatcher]; last.claim != "" && rapid.IntRange(0, 3).Draw(t, "resend") == 0 {
		a.claim = last.claim
	}
	_, a.holdsLone = m.lone[a.dispatcher]
	m.claimOf(t, a, of)
}

// claimOf claims, and judges what came.
func (m *flowModel) claimOf(t *rapid.T, a ask, of reserved) claimed {
	again := a.claim == m.last[a.dispatcher].claim
	if m.hasGroups && len(of.groups) == 0 {
		return claimed{now: of.now, next: of.next}
	}
	c := m.claimFlows(a, of)
	after := m.snapshot()
	if len(c.jobs) > 0 {
		m.last[a.dispatcher] = a
	}
	for i, job := range c.jobs {
		j := m.jobs[job.id]
		if held := m.held[job.id]; again && held.epoch == job.epoch && held.claim == job.claim {
			continue
		}
		at := job.slot + m.shift
		switch {
		case !j.is(isQueued, isScheduled, isRetrying) || j.purging:
			t.Fatalf("claimed %s, which is %+v", job.id, *j)
		case job.flow != j.flow:
			t.Fatalf("claimed %s as one of %q, and it is one of %q", job.id, job.flow, j.flow)
		case m.paused || m.own[j.flow].paused > 0 || m.ownGroups[m.groupOf(j.flow)].paused > 0:
			t.Fatalf("claimed %s, and that is paused", job.id)
		case j.expires > 0 && at > j.expires+1000:
			t.Fatalf("claimed %s, which expired", job.id)
		case (j.crashes == lastChance) != (c.lone == int64(i+1)):
			t.Fatalf("%s has crashed %d times; %d of %q is lone", job.id, j.crashes, c.lone, c.ids())
		}
		if c.lone == int64(i+1) {
			if a.holdsLone {
				t.Fatalf("%s got %s while it holds %s", a.dispatcher, job.id, m.lone[a.dispatcher])
			}
			m.lone[a.dispatcher] = job.id
		}
		for id, other := range m.jobs {
			if j.order > 0 && !j.reused && other.order > 0 && other.order < j.order && !other.reused && other.is(isQueued) && !other.purging &&
				other.flow == j.flow && other.priority == j.priority && after.jobs[id].state != isDead {
				t.Fatalf("claimed %s before %s", job.id, id)
			}
		}
		m.slots["bucket"].departs(t, "the bucket", at)
		m.slots["flow "+j.flow].departs(t, fmt.Sprintf("flow %q", j.flow), at)
		j.state, j.order, m.held[job.id] = isInFlight, 0, job
		m.old = slices.DeleteFunc(m.old, job.sameClaim)
		if most := m.obeyed(j.flow).inFlight; most > 0 && m.inFlight(j.flow) > most {
			t.Fatalf("%d jobs of flow %q are in flight", m.inFlight(j.flow), j.flow)
		}
		m.groupDeparts(t, j.flow, at)
		if n := int64(len(m.held)); n > m.s.inFlight {
			t.Fatalf("%d jobs are in flight", n)
		}
	}
	var expired int64
	for id, j := range m.jobs {
		now, there := after.jobs[id]
		switch {
		case !there || !j.is(isQueued, isScheduled, isRetrying):
		case now.state == isDead:
			if expired++; j.purging || j.expires == 0 || j.expires > m.clock()+200_000 {
				t.Fatalf("%s expired: %+v", id, *j)
			}
			j.state, j.order, j.sched = isDead, 0, false
		case now.state == isRetrying && j.is(isQueued) && j.crashes == lastChance:
			j.state = isRetrying
		}
	}
	if expired != c.expired {
		t.Fatalf("%d jobs expired, the claim says %d", expired, c.expired)
	}
	return c
}

func (m *flowModel) settleSome(t *rapid.T) {
	var outcomes []outcome
	var want []int64
	taken := map[string]bool{}
	for range rapid.IntRange(1, 3).Draw(t, "outcomes") {
		var l lease
		ids := slices.Sorted(maps.Keys(m.held))
		late := len(m.old) > 0 && rapid.IntRange(0, 4).Draw(t, "late") == 0
		if late {
			l = rapid.SampledFrom(m.old).Draw(t, "lease")
		} else if len(ids) > 0 {
			l = m.held[rapid.SampledFrom(ids).Draw(t, "id")]
		} else {
			return
		}
		o := outcome{lease: l, result: rapid.IntRange(done, returned).Draw(t, "result")}
		o.delay = rapid.SampledFrom([]int64{1000, second / 2, 3 * second}).Draw(t, "delay")
		outcomes = append(outcomes, o)
		if late || taken[l.id] {
			want = append(want, 0)
		} else {
			want = append(want, 1)
		}
		taken[l.id] = taken[l.id] || !late
	}
	if got := m.settle(outcomes...); !slices.Equal(got, want) {
		t.Fatalf("settled %v, want %v", got, want)
	}
	for i, o := range outcomes {
		if want[i] == 1 {
			m.settled(o)
		}
	}
}

func (m *flowModel) settled(o outcome) {
	j := m.jobs[o.id]
	j.state = map[int]int64{done: isDone, retry: isRetrying, dead: isDead, returned: isQueued}[o.result]
	j.sched = j.sched && o.result != done && o.result != dead
	if o.result != returned {
		j.crashes = 0
	}
	m.drop(o.id)
}

func (m *flowModel) drop(id string) {
	m.old = append(m.old, m.held[id])
	delete(m.held, id)
	maps.DeleteFunc(m.lone, func(_, lone string) bool { return lone == id })
}

// drainAll takes all that holds jobs back away, and lets all of them leave.
func (m *flowModel) drainAll(t *rapid.T) {
	m.resume()
	m.control("reset", "anna", "max_in_flight")
	m.paused, m.s.inFlight = false, 1000
	for _, flow := range m.flows {
		m.controlFlow(flow, "resume")
		m.controlFlow(flow, "reset")
		m.own[flow] = flowSettings{}
		m.restart(flow)
	}
	for _, group := range m.groups {
		m.controlGroup(group, "resume")
		m.controlGroup(group, "reset")
		m.ownGroups[group] = flowSettings{}
		m.restartGroup(group)
	}
	for m.snapshot().left() > 0 {
		m.purgeOnce(t, purge{atMost: 3})
	}
	for wait := int64(second); m.count("*", false)+m.count("*", true) > 0; wait += wait / 8 {
		if wait > 24*3600*second {
			t.Fatalf("never came out: %v", m.in(isQueued, isScheduled, isInFlight, isRetrying))
		}
		for _, id := range slices.Sorted(maps.Keys(m.held)) {
			o := outcome{lease: m.held[id], result: done}
			m.settle(o)
			m.settled(o)
		}
		m.wait(wait)
		of := m.reserve(100, 300_000)
		m.claimOf(t, ask{dispatcher: "last", claim: fmt.Sprint("c", nextClaim()), want: 100}, of)
		m.check(t)
		delete(m.lone, "last")
	}
	for range len(m.flows) {
		m.wait(24 * 3600 * second)
		m.drain(ask{})
	}
	m.find(sweep{none: true, flowCursor: "0"})
	if m.hasGroups {
		m.find(sweep{none: true, flowCursor: "g0"})
	}
	s := m.snapshot()
	if len(s.due)+len(s.flows)+len(s.leases)+s.left()+len(s.groups)+len(s.top) > 0 {
		t.Fatalf("left: calendar %v, flows %v, leases %v, groups %v, theirs %v", s.due, s.flows, s.leases, s.groups, s.top)
	}
	for _, flow := range m.flows {
		if len(s.all(flow))+len(s.later[flow]) > 0 {
			t.Fatalf("left in flow %q: %v, %v", flow, s.all(flow), s.later[flow])
		}
	}
}
