package scripts_test

import (
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// codeOf is what enqueue should answer.
func (m *flowModel) codeOf(e entry, there, groups map[string]bool) int64 {
	if job := m.jobs[e.id]; job != nil && (job.state <= isDead || m.s.dedupe > 0) {
		if job.content != e.content {
			return 4
		}
		return 3
	}
	f := m.obeyed(m.nameOf(e))
	switch {
	case e.due != "" && m.count("*", true) >= m.s.scheduled:
		return 8
	case e.due == "" && m.count("*", false) >= m.s.capacity:
		return 7
	case e.due == "" && m.groupFull(m.nameOf(e)):
		return groupFull
	case e.due == "" && f.capacity > 0 && m.count(m.nameOf(e), false) >= f.capacity:
		return flowFull
	case e.due != "" && m.groupScheduledFull(m.nameOf(e)):
		return groupScheduledFull
	case e.due != "" && f.capacity > 0 && m.count(m.nameOf(e), true) >= f.capacity:
		return flowScheduledFull
	case m.hasGroups && !groups[e.group] && int64(len(groups)) >= m.of.maxFlows:
		return tooManyGroups
	case !there[m.nameOf(e)] && int64(len(there)) >= m.of.maxFlows:
		return tooManyFlows
	case e.due != "":
		return 2
	}
	return 1
}

func (m *flowModel) put(t *rapid.T) {
	alike, flow, priority := rapid.IntRange(0, 2).Draw(t, "alike") == 0, m.pick(t), rapid.IntRange(1, 4).Draw(t, "priority")
	var jobs []entry
	for range rapid.IntRange(1, 4).Draw(t, "jobs") {
		e := entry{id: pickID(t), content: "x", priority: priority}.in(m.rig, flow)
		e.expires = rapid.SampledFrom([]int64{0, 0, 0, second / 2, 5 * second}).Draw(t, "expires")
		if !alike {
			e.content = rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "content")
			e.due = rapid.SampledFrom([]string{"", "", "+300000", "+2000000"}).Draw(t, "due")
			e.priority = rapid.IntRange(1, 4).Draw(t, "priority")
			e = e.in(m.rig, m.pick(t))
		}
		if !slices.ContainsFunc(jobs, func(other entry) bool { return alike && other.id == e.id }) {
			jobs = append(jobs, e)
		}
	}
	m.putJobs(t, jobs, alike)
}

// useAgain cancels a job that waits, and uses its id for another.
func (m *flowModel) useAgain(t *rapid.T) {
	ids := m.in(isQueued)
	if len(ids) == 0 || m.s.dedupe > 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	m.cancel(id, "")
	old := m.jobs[id]
	old.state, old.sched, old.purging = isCancelled, false, false
	e := entry{id: id, content: "x", priority: old.priority}.in(m.rig, old.flow)
	if rapid.Bool().Draw(t, "another flow") {
		e = e.in(m.rig, m.pick(t))
	}
	e.due = rapid.SampledFrom([]string{"", "+2000000"}).Draw(t, "due")
	m.putJobs(t, []entry{e}, false)
}

// forgotten wants that a flow or a group that is gone had no jobs.
func (m *flowModel) forgotten(t *rapid.T, name, text string) bool {
	if !strings.Contains(text, " 0 0 0 .") {
		t.Fatalf("%q was forgotten with jobs: %s", name, text)
	}
	return true
}

func (m *flowModel) putJobs(t *rapid.T, jobs []entry, alike bool) {
	there, groups := map[string]bool{}, map[string]bool{}
	s := m.snapshot()
	for flow := range s.flows {
		there[flow] = true
	}
	for group := range s.groups {
		groups[group] = true
	}
	var codes []int64
	if alike {
		codes = m.enqueueBatch(jobs)
	} else {
		for _, a := range m.enqueue(nil, jobs...) {
			codes = append(codes, a.code)
		}
	}
	// Idle flows and groups make room for new ones: see lib/idle.lua.
	after := m.snapshot()
	for flow, text := range s.flows {
		if _, kept := after.flows[flow]; !kept && m.forgotten(t, flow, text) {
			delete(there, flow)
		}
	}
	for group, text := range s.groups {
		if _, kept := after.groups[group]; !kept && m.forgotten(t, group, text) {
			delete(groups, group)
		}
	}
	now := m.clock()
	for i, e := range jobs {
		if want := m.codeOf(e, there, groups); codes[i] != want {
			t.Fatalf("enqueue %d, %+v: code %d, want %d", i, e, codes[i], want)
		}
		if codes[i] > 2 {
			continue
		}
		m.order++
		job := &modelJob{flow: m.nameOf(e), content: e.content, priority: e.priority, state: codes[i], sched: codes[i] == 2, order: m.order}
		job.reused = m.jobs[e.id] != nil
		if job.sched {
			job.order = 0
		}
		if e.expires > 0 {
			job.expires = now + e.expires
		}
		m.jobs[e.id], there[job.flow], groups[e.group] = job, true, true
	}
}
