package scripts_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// Codes of enqueue.lua.
const groupFull, tooManyGroups = 12, 13

// modelGroups are the groups of the model, and the flows of each.
var modelGroups = map[string][]string{"a": {"x", "", "y"}, "": {"x", "1:a"}, `3:<"\ü`: {"x", `"<b>\`}}

// Whatever is done in whatever order to a bucket whose flows are in groups: what TestFlowModel asks of flows, and the same of
// groups: what is kept of a group is the sum of its flows, its bounds and rates hold beside those of its flows, and one that may
// send is in the turn queue in time.
func TestGroupModel(t *testing.T) {
	checkFlowModel(t, true)
}

// begin puts the flows of the model into groups.
func (m *flowModel) begin(t *rapid.T) {
	m.ofGroups = flowSettings{
		rateCount: rapid.SampledFrom([]int64{0, 0, 6}).Draw(t, "group rate"), burst: rapid.Int64Range(1, 2).Draw(t, "group burst"),
		capacity: rapid.Int64Range(0, 6).Draw(t, "group capacity"), inFlight: rapid.Int64Range(0, 3).Draw(t, "group in flight"),
		quotas: rapid.SampledFrom([]string{"", "", fmt.Sprintf("%d %d;", quotaCount, quotaWindow)}).Draw(t, "group quotas"),
	}
	m.configureGroups(m.s, m.of, m.ofGroups)
	m.ownGroups, m.flows = map[string]flowSettings{}, nil
	for _, group := range []string{"a", "", `3:<"\ü`} {
		m.groups = append(m.groups, group)
		m.restartGroup(group)
		m.slots["group "+group].quota = m.ofGroups.quotas != ""
		for _, flow := range modelGroups[group] {
			m.flows = append(m.flows, path(group, flow))
		}
	}
}

func (m *flowModel) groupOf(flow string) string {
	if !m.hasGroups {
		return ""
	}
	group, _ := splitPath(flow)
	return group
}

// sum sums up something of the flows of a group.
func (m *flowModel) sum(group string, of func(flow string) int64) (n int64) {
	for _, flow := range m.flows {
		if m.groupOf(flow) == group {
			n += of(flow)
		}
	}
	return n
}

func (m *flowModel) unfinishedOf(group string) int64 {
	return m.sum(group, func(flow string) int64 { return m.count(flow, false) })
}

func (m *flowModel) flyingOf(group string) int64 { return m.sum(group, m.inFlight) }

// groupFull reports whether the group of a flow takes no job more.
func (m *flowModel) groupFull(flow string) bool {
	if !m.hasGroups {
		return false
	}
	most := m.obeyedBy(m.groupOf(flow)).capacity
	return most > 0 && m.unfinishedOf(m.groupOf(flow)) >= most
}

// groupScheduledFull reports whether the group of a flow takes no scheduled job more.
func (m *flowModel) groupScheduledFull(flow string) bool {
	if !m.hasGroups {
		return false
	}
	group := m.groupOf(flow)
	most := m.obeyedBy(group).capacity
	return most > 0 && m.sum(group, func(flow string) int64 { return m.count(flow, true) }) >= most
}

// obeyedBy are the settings that a group obeys.
func (m *flowModel) obeyedBy(group string) flowSettings {
	return obeyed(m.ofGroups, m.ownGroups[group])
}

func (m *flowModel) groupDeparts(t *rapid.T, flow string, at int64) {
	if !m.hasGroups {
		return
	}
	group := m.groupOf(flow)
	m.slots["group "+group].departs(t, fmt.Sprintf("group %q", group), at)
	if most := m.obeyedBy(group).inFlight; most > 0 && m.flyingOf(group) > most {
		t.Fatalf("%d jobs of group %q are in flight", m.flyingOf(group), group)
	}
}

func (m *flowModel) restartGroup(group string) {
	m.slots["group "+group] = watched(m.obeyedBy(group), m.slots["group "+group])
}

// controlAGroup pauses or resumes a group, or changes its settings.
func (m *flowModel) controlAGroup(t *rapid.T) {
	if !m.hasGroups {
		return
	}
	group := rapid.SampledFrom(m.groups).Draw(t, "group")
	own := m.ownGroups[group]
	switch rapid.SampledFrom([]string{"pause", "resume", "resume", "set", "set", "set", "reset"}).Draw(t, "control") {
	case "pause":
		m.controlGroup(group, "pause", "tests")
		own.paused = 1
	case "resume":
		m.controlGroup(group, "resume")
		own.paused = 0
	case "set":
		var args []any
		own, args = changed(t, own)
		m.controlGroup(group, "set", args...)
	case "reset":
		m.controlGroup(group, "reset")
		own = flowSettings{paused: own.paused}
	}
	before := m.ownGroups[group]
	if m.ownGroups[group] = own; own.rateCount != before.rateCount || own.ratePer != before.ratePer || own.burst != before.burst {
		m.restartGroup(group)
	}
}

// idleGroups sweeps groups as a process that has nothing else to do.
func (m *flowModel) idleGroups(t *rapid.T) {
	if !m.hasGroups {
		return
	}
	f, s := m.find(sweep{none: true, flowCursor: "g0"}), m.snapshot()
	for _, flow := range f.flows {
		for other := range s.due {
			if m.groupOf(other) == m.groupOf(flow) {
				t.Fatalf("found group %q off the calendar, and %q is on that of its flows", m.groupOf(flow), other)
			}
		}
	}
	must.Be(t, f.repaired, 0, "repaired")
}

// checkGroup compares what is kept of a group, and whether it is in the turn queue in time.
func (m *flowModel) checkGroup(t *rapid.T, s snapshot, group string) {
	want := [3]int64{m.unfinishedOf(group), m.sum(group, func(flow string) int64 { return m.count(flow, true) }), m.flyingOf(group)}
	g := flowState{}
	if text, ok := s.groups[group]; ok {
		if _, err := fmt.Sscan(text, &g.slot, &g.frac, &g.rate, &g.turn, &g.unfinished, &g.scheduled, &g.inFlight); err != nil {
			t.Fatalf("group %q is %q: %v", group, text, err)
		}
	}
	must.Be(t, [3]int64{g.unfinished, g.scheduled, g.inFlight}, want, "group %q is %q", group, s.groups[group])
	obeys := m.obeyedBy(group)
	if obeys.paused > 0 || obeys.inFlight > 0 && want[2] >= obeys.inFlight {
		return
	}
	var turns []int64
	for _, flow := range m.flows {
		if turn, ok := s.due[flow]; ok && m.groupOf(flow) == group {
			turns = append(turns, turn-s.offset)
		}
	}
	if len(turns) == 0 {
		return
	}
	latest := max(slices.Min(turns), s.now+second)
	if obeys.rateCount > 0 {
		interval := cmp.Or(obeys.ratePer, second) / obeys.rateCount
		latest = max(latest, s.now+200_000+(cmp.Or(obeys.burst, 1)+1)*interval)
	}
	if m.ofGroups.quotas != "" {
		latest = max(latest, s.now+200_000+quotaWindow)
	}
	if turn, ok := s.top[group]; !ok || turn-s.offset > latest+10 {
		t.Fatalf("group %q has flows at %v and goes at %d (%t), in %d µs", group, turns, turn-s.offset, ok, turn-s.offset-s.now)
	}
}
