package scripts_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// lose has leases run out, as if their dispatchers had died, and sweeps.
func (m *flowModel) lose(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.held)) {
		if rapid.IntRange(0, 2).Draw(t, "ends "+id) == 0 {
			m.end(id)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "half") == 0 {
		m.find(sweep{}) // whoever did it has died before he could mend
		return
	}
	s := sweep{pardon: rapid.IntRange(0, 3).Draw(t, "pardon") == 0}
	before := m.snapshot()
	out := m.sweep(s)
	var takenBack, poison int64
	for id, ends := range before.leases {
		if ends > before.now {
			continue
		}
		j := m.jobs[id]
		if !s.pardon {
			j.crashes++
		}
		if j.state = isQueued; j.crashes > lastChance {
			j.state, j.sched = isDead, false
			poison++
		} else {
			takenBack++
		}
		m.drop(id)
	}
	if out.takenBack != takenBack || out.poison != poison {
		t.Fatalf("swept %+v, want %d taken back and %d poison", out, takenBack, poison)
	}
}

// operate cancels, drops or redrives.
func (m *flowModel) operate(t *rapid.T) {
	id := pickID(t)
	j := m.jobs[id]
	if j == nil {
		j = &modelJob{flow: m.flows[0]}
	}
	switch rapid.SampledFrom([]string{"cancel", "cancel", "drop", "redrive"}).Draw(t, "operation") {
	case "cancel":
		if code := m.cancel(id, ""); j.is(isQueued, isScheduled, isRetrying) {
			must.Be(t, code, isCancelled, "cancelled %s", id)
			j.state, j.sched, j.purging = isCancelled, false, false
		}
	case "drop":
		if m.cancel(id, "5"); j.is(isDead) {
			j.state = isDropped
		}
	case "redrive":
		s := m.snapshot()
		flows := s.flows
		_, groupThere := s.groups[m.groupOf(j.flow)]
		want, f := int64(1), m.obeyed(j.flow)
		_, there := flows[j.flow]
		switch {
		case j.is(isQueued) && m.redriven(id):
			want = 3
		case !j.is(isDead):
			want = 0
		case m.count("*", false) >= m.s.capacity:
			want = 2
		case m.hasGroups && (m.groupFull(j.flow) || !groupThere && int64(len(s.groups)) >= m.of.maxFlows):
			want = 5
		case f.capacity > 0 && m.count(j.flow, false) >= f.capacity, !there && int64(len(flows)) >= m.of.maxFlows:
			want = 4
		}
		must.Be(t, m.redrive(id)[0], want, "redrive %s (%+v)", id, *j)
		if want == 1 {
			m.order++
			j.state, j.crashes = isQueued, 0
			if j.expires > 0 {
				j.expires = 0
				m.redate(id, j)
			}
		}
	}
}

// redriven reports whether a queued job has a meta, as one has that was put back.
func (m *flowModel) redriven(id string) bool {
	has := must.Get(m.c.HExists(m.ctx, m.key("meta"), id).Result())(m.t)
	return has
}

// redate reads when a job expires that has been put back: its time begins anew.
func (m *flowModel) redate(id string, j *modelJob) {
	body := m.stored("body", id)
	var base, at int64
	var mark string
	must.Get(fmt.Sscan(body, &base, &at, &mark))(m.t)
	var after int64
	must.Get(fmt.Sscanf(mark[16:], "~%d", &after))(m.t)
	j.expires = at + after + m.shift
}

// control pauses, resumes, and changes settings, of the bucket or of a flow.
func (m *flowModel) controlIt(t *rapid.T) {
	flow := m.pick(t)
	own := m.own[flow]
	switch rapid.SampledFrom([]string{"pause", "resume", "resume", "capacity", "in flight", "pause flow", "resume flow",
		"resume flow", "set", "set", "set", "reset"}).Draw(t, "control") {
	case "pause":
		m.pause()
		m.paused = true
	case "resume":
		m.resume()
		m.paused = false
	case "capacity":
		m.s.capacity = rapid.Int64Range(1, 12).Draw(t, "new capacity")
		m.control("set", "anna", "capacity", m.s.capacity)
	case "in flight":
		m.s.inFlight = rapid.Int64Range(1, 6).Draw(t, "new in flight")
		m.control("set", "anna", "max_in_flight", m.s.inFlight)
	case "pause flow":
		m.controlFlow(flow, "pause", "tests")
		own.paused = 1
	case "resume flow":
		m.controlFlow(flow, "resume")
		own.paused = 0
	case "set":
		own = m.set(t, flow, own)
	case "reset":
		m.controlFlow(flow, "reset")
		own = flowSettings{paused: own.paused}
	}
	changed := own.rateCount != m.own[flow].rateCount || own.ratePer != m.own[flow].ratePer || own.burst != m.own[flow].burst
	if m.own[flow] = own; changed {
		m.restart(flow)
	}
}

// restart begins to watch the rate of a flow anew.
func (m *flowModel) restart(flow string) {
	m.slots["flow "+flow] = watched(m.obeyed(flow), m.slots["flow "+flow])
}

func watched(f flowSettings, old *steady) *steady {
	watch := &steady{burst: cmp.Or(f.burst, 1)}
	if f.rateCount > 0 {
		watch.interval = float64(cmp.Or(f.ratePer, second)) / float64(f.rateCount)
	}
	if old != nil {
		watch.quota, watch.left = old.quota, old.left
	}
	return watch
}

func (m *flowModel) set(t *rapid.T, flow string, own flowSettings) flowSettings {
	own, args := changed(t, own)
	m.controlFlow(flow, "set", args...)
	return own
}

// changed changes one of the settings that a flow or a group has of its own.
func changed(t *rapid.T, own flowSettings) (now flowSettings, args []any) {
	args = make([]any, 6)
	for i := range args {
		args[i] = ""
	}
	change := func(i int, to *int64, value int64) {
		if *to = value; value == 0 {
			args[i] = "-"
		} else {
			args[i] = value
		}
	}
	switch rapid.SampledFrom([]string{"rate", "rate", "burst", "capacity", "in flight", "in flight", "weight"}).Draw(t, "setting") {
	case "rate":
		rate := rapid.SampledFrom([][2]int64{{0, 0}, {2, second}, {10, second}, {1, 3 * second}, {1000, second}}).Draw(t, "rate")
		change(0, &own.rateCount, rate[0])
		change(1, &own.ratePer, rate[1])
	case "burst":
		change(2, &own.burst, rapid.Int64Range(0, 3).Draw(t, "burst"))
	case "capacity":
		change(3, &own.capacity, rapid.Int64Range(0, 4).Draw(t, "capacity"))
	case "in flight":
		change(4, &own.inFlight, rapid.Int64Range(0, 3).Draw(t, "in flight"))
	case "weight":
		change(5, &own.weight, rapid.Int64Range(0, 3).Draw(t, "weight"))
	}
	return own, args
}

// purgeSome runs a chunk of a purge: of a new one, of the last one, or as the sweeper goes on.
func (m *flowModel) purgeSome(t *rapid.T) {
	p := m.purging
	switch rapid.SampledFrom([]string{"new", "new", "again", "sweeper"}).Draw(t, "purge") {
	case "new":
		p = purge{id: fmt.Sprint("p", nextClaim()), flow: m.pick(t), keepLater: rapid.Bool().Draw(t, "keep later")}
	case "sweeper":
		p.id, p.flow, p.keepLater = "", "", false
	}
	p.atMost = rapid.IntRange(1, 3).Draw(t, "at most")
	m.purgeOnce(t, p)
}

func (m *flowModel) purgeOnce(t *rapid.T, p purge) {
	before := m.snapshot()
	if before.left() == 0 && p.id != "" && p.id != m.purging.id {
		m.purging = p
		for _, id := range before.wouldPurge(p.flow, p.keepLater) {
			m.jobs[id].purging = true
		}
	}
	out := m.purge(p)
	after := m.snapshot()
	var removed int64
	for id := range before.jobs {
		if _, there := after.jobs[id]; there {
			continue
		}
		removed++
		j := m.jobs[id]
		if !j.purging && (!j.reused || !j.is(isQueued)) {
			t.Fatalf("purged %s, which is %+v", id, *j)
		}
		j.state, j.sched, j.purging = isCancelled, false, false
	}
	if removed != out.removed || out.left != int64(after.left()) {
		t.Fatalf("purged %+v; %d are gone, %d left", out, removed, after.left())
	}
	if out.left == 0 {
		for id, j := range m.jobs {
			if j.purging {
				t.Fatalf("the purge has left %s: %+v", id, *j)
			}
		}
	}
}

// idle sweeps as a process that has nothing else to do: there is nothing to mend.
func (m *flowModel) idle(t *rapid.T) {
	f := m.find(sweep{none: true, cursor: "0", flowCursor: "0"})
	if len(f.flows) > 0 || f.repaired != 0 {
		t.Fatalf("found flows %q, repaired %d", f.flows, f.repaired)
	}
	m.idleGroups(t)
	if _, _, repaired, missing := m.takeBack(sweep{retry: 1000 * 3600 * second}, f.ids, m.flows); repaired != 0 || missing != 0 {
		t.Fatalf("repaired %d, missing %d", repaired, missing)
	}
}

// check compares all that there is with the model.
func (m *flowModel) check(t *rapid.T) {
	m.wantBytesOfDead()
	m.wantAttemptsOfJobs()
	s := m.snapshot()
	for id, j := range m.jobs {
		got, there := s.jobs[id]
		must.Be(t, there, (j.state <= isDead), "%s is there, want %+v", id, *j)
		if there && (got.state != j.state || got.flow != j.flow || got.sched != j.sched && !j.is(isDead) || got.crashes != j.crashes && !j.is(isDead)) {
			t.Fatalf("%s is %+v, want %+v", id, got, *j)
		}
	}
	if len(s.leases) != len(m.held) || len(s.dead) != len(m.in(isDead)) {
		t.Fatalf("leases %v, dead %v; want %v, %v", s.leases, s.dead, m.held, m.in(isDead))
	}
	for id, j := range m.jobs {
		if j.state <= isDead {
			m.checkPlaces(t, s, id, j)
		}
	}
	for _, flow := range m.flows {
		for id := range s.later[flow] {
			if j := m.jobs[id]; j.flow != flow || !j.is(isScheduled, isRetrying) {
				t.Fatalf("%s lies in later of %q: %+v", id, flow, *j)
			}
		}
		m.checkFlow(t, s, flow)
	}
	for _, group := range m.groups {
		m.checkGroup(t, s, group)
	}
	if got, want := cmp.Or(s.count["scheduled"], "0"), fmt.Sprint(m.count("*", true)); got != want {
		t.Fatalf("scheduled %s, want %s", got, want)
	}
}

// checkPlaces looks for a job in all places.
func (m *flowModel) checkPlaces(t *rapid.T, s snapshot, id string, j *modelJob) {
	own := 0
	for _, flow := range m.flows {
		for i, list := range s.lists[flow] {
			for _, other := range list {
				if other == id && flow == j.flow && i+1 == j.priority && j.is(isQueued) && !j.purging {
					own++
				} else if other == id && !j.reused {
					t.Fatalf("%s lies in a list of %q: %+v", id, flow, *j)
				}
			}
		}
	}
	if j.reused {
		own = min(own, 1)
	}
	places := own
	if _, in := s.later[j.flow][id]; in && j.is(isScheduled, isRetrying) && !j.purging {
		places++
	} else if in {
		t.Fatalf("%s lies in later: %+v", id, *j)
	}
	if _, in := s.leases[id]; in && j.is(isInFlight) {
		places++
	}
	if _, in := s.dead[id]; in && j.is(isDead) {
		places++
	}
	if j.purging {
		_, in := s.movedOut[id]
		if in && j.is(isScheduled, isRetrying) || j.is(isQueued) && slices.Contains(s.purged[j.priority-1], id) {
			places++
		}
	}
	must.Be(t, places, 1, "%s is in places: %+v", id, *j)
}

// checkFlow compares what is kept of a flow, and whether it is in the turn queue in time.
func (m *flowModel) checkFlow(t *rapid.T, s snapshot, flow string) {
	plain, sched, flying := m.count(flow, false), m.count(flow, true), m.inFlight(flow)
	f := flowState{}
	if text, ok := s.flows[flow]; ok {
		if _, err := fmt.Sscan(text, &f.slot, &f.frac, &f.rate, &f.turn, &f.unfinished, &f.scheduled, &f.inFlight); err != nil {
			t.Fatalf("flow %q is %q: %v", flow, text, err)
		}
	}
	if f.unfinished != plain || f.scheduled != sched || f.inFlight != flying {
		t.Fatalf("flow %q is %q, want %d %d %d", flow, s.flows[flow], plain, sched, flying)
	}
	obeys := m.obeyed(flow)
	if obeys.paused > 0 || obeys.inFlight > 0 && flying >= obeys.inFlight {
		return
	}
	next := int64(-1)
	for id, j := range m.jobs {
		if j.flow != flow || j.purging {
			continue
		}
		if j.is(isQueued) {
			next = s.now
		} else if due, ok := s.later[flow][id]; ok && (next == -1 || due < next) {
			next = due
		}
	}
	if next == -1 {
		return
	}
	latest := max(next, s.now+second)
	if obeys.rateCount > 0 {
		interval := cmp.Or(obeys.ratePer, second) / obeys.rateCount
		latest = max(latest, s.now+200_000+(cmp.Or(obeys.burst, 1)+1)*interval)
	}
	if m.of.quotas != "" {
		latest = max(latest, s.now+200_000+quotaWindow)
	}
	turn, ok := s.due[flow]
	if !ok || turn-s.offset > latest+10 {
		t.Fatalf("flow %q has something at %d and goes at %d (%t), in %d µs", flow, next, turn-s.offset, ok, turn-s.offset-s.now)
	}
}
