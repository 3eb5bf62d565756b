package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// mustExist is disabling, in buckets whose flows have to exist.
func mustExist(t *testing.T, test func(t *testing.T, r *rig, flow, other string)) {
	t.Helper()
	disabling(t, func(t *testing.T, r *rig, flow, other string) {
		r.hset("settings", "flow_must_exist", 1)
		test(t, r, flow, other)
	})
}

// set gives a flow settings of its own: numbers, then lines.
func (r *rig) set(flow string, weight any, lines ...any) {
	r.t.Helper()
	r.controlFlow(flow, "set", append([]any{"", "", "", "", "", weight}, lines...)...)
}

// codesOf enqueues jobs and returns the codes of their answers.
func (r *rig) codesOf(jobs ...entry) string {
	r.t.Helper()
	var all []string
	for _, a := range r.enqueue(nil, jobs...) {
		all = append(all, fmt.Sprint(a.code))
	}
	return strings.Join(all, " ")
}

// A flow exists once it has a setting of its own. Jobs of any other are refused, alone or among others, and leave nothing behind.
func TestUnknownFlowsAreRefused(t *testing.T) {
	mustExist(t, func(t *testing.T, r *rig, flow, other string) {
		want := func(want string, jobs ...entry) {
			t.Helper()
			must.Equal(t, r.codesOf(jobs...), want, "codes")
		}
		want("22", entry{id: "a"}.in(r, flow))
		want("22", entry{id: "a", due: "+5000000"}.in(r, flow))
		want("22 22", entry{id: "a"}.in(r, flow), entry{id: "a"}.in(r, other))
		for _, key := range []string{"body", "flows", "groups", "flow_owners", "idle", "due:", "due_groups", "later:" + flow} {
			must.Equal(t, r.exists(key), 0, "a refusal left %s", key)
		}
		r.set(other, 1)
		want("22 1 22", entry{id: "a"}.in(r, flow), entry{id: "o1"}.in(r, other), entry{id: "b"}.in(r, flow))

		r.controlFlow(flow, "pause", "{}")
		want("22", entry{id: "a"}.in(r, flow)) // a pause is no setting
		r.hset("flow_settings", flow, "- - - - - - - 17/gone\n-")
		want("22", entry{id: "a"}.in(r, flow)) // nor that it is disabled
		r.set(flow, "", `"https://a.example"`)
		want("16", entry{id: "a"}.in(r, flow))
		r.controlFlow(flow, "enable")
		want("1", entry{id: "a"}.in(r, flow))
		r.set(flow, "", "-", `{"X":"y"}`)
		want("1", entry{id: "b"}.in(r, flow))
		r.set(flow, "", "-", "-", `["secret"]`)
		want("1", entry{id: "c"}.in(r, flow))
		r.set(flow, "", "-", "-", "-")
		want("22", entry{id: "d"}.in(r, flow))
		want("3", entry{id: "c"}.in(r, flow)) // what got in did
		r.set(flow, 7)
		want("1 22", entry{id: "d"}.in(r, flow), entry{id: "e"}.in(r, other+"x"))
	})
}

// Where a bucket has no URL, a job that names none needs that of its flow.
func TestAFlowWithoutAURLTakesNoJobsThatNeedOne(t *testing.T) {
	mustExist(t, func(t *testing.T, r *rig, flow, other string) {
		r.hset("settings", "flow_needs_url", 1)
		r.set(flow, 2)
		r.set(other, "", `"https://o.example"`)
		names := func(id, header string) entry {
			return entry{id: id, more: header}.in(r, flow)
		}
		for _, c := range []struct {
			want string
			jobs []entry
		}{
			{"23", []entry{entry{id: "a"}.in(r, flow)}},
			{"1 23", []entry{entry{id: "b"}.in(r, other), entry{id: "c"}.in(r, flow)}},
			{"23 23", []entry{names("d", `,"u":"/path"`), names("e", `,"m":"\"u\":\"https://x.example\""`)}},
			{"1", []entry{names("f", `,"u":"https://x.example"`)}},
			{"1 23", []entry{names("g", `,"u":"https://x.example","m":"PUT"`), names("h", `,"h":{"u":["https://x.example"]}`)}},
			{"22", []entry{entry{id: "i"}.in(r, other+"x")}},
		} {
			must.Equal(t, r.codesOf(c.jobs...), c.want, "%+v: codes", c.jobs)
		}
		r.set(flow, "", `"https://f.example"`)
		must.Equal(t, r.codesOf(entry{id: "a"}.in(r, flow), entry{id: "c"}.in(r, flow)), "1 1", "with a URL: codes")
	})
}

// Jobs of a flow that is reset wait until it has a setting again, whatever is done with them meanwhile: none leaves, and none is lost. Other
// flows go on.
func TestJobsOfARemovedFlowWait(t *testing.T) {
	mustExist(t, func(t *testing.T, r *rig, flow, other string) {
		left := func(want string) claimed {
			t.Helper()
			var ids []string
			out := r.drain(ask{})
			for _, job := range out.jobs {
				ids = append(ids, job.id)
			}
			must.Equal(t, strings.Join(ids, " "), want, "left")
			r.pass(second)
			return out
		}
		r.set(flow, 1)
		r.set(other, 1)
		r.putIn(flow, 3, 0, "dies", "comes back", "w1", "w2")
		r.pass(second)
		first := r.drain(ask{want: 2})
		if len(first.jobs) == 1 {
			first.jobs = append(first.jobs, r.drain(ask{want: 1}).jobs...)
		}
		r.controlFlow(flow, "reset")
		r.settle(outcome{lease: first.jobs[0], result: dead, last: `{"cause":"permanent"}`}, outcome{lease: first.jobs[1], result: returned})
		r.redrive("dies")
		r.putIn(other, 3, 0, "o1")
		r.pass(second)
		left("o1")
		left("")
		must.Equal(t, r.listAt("q:normal:"+flow), "comes back w1 w2 dies", "there wait")
		if j := r.job("w1"); j.instant != 0 || j.missing != 1 || j.ofFlow.paused != 0 {
			t.Errorf("of the job is told: eta %d, missing %d, paused %d", j.instant, j.missing, j.ofFlow.paused)
		}
		r.audit()
		left("")
		if !r.wakes(func() { r.set(flow, 9) }) {
			t.Error("no dispatcher is woken")
		}
		left("comes back w1 w2 dies")
	})
}

// A bucket that stops asking for it lets go what waits, once the sweeper has seen that.
func TestMissingFlowsGoOnWithoutTheSetting(t *testing.T) {
	mustExist(t, func(t *testing.T, r *rig, flow, _ string) {
		r.set(flow, 1)
		r.putIn(flow, 3, 0, "w1")
		r.controlFlow(flow, "reset")
		r.pass(second)
		if got := r.drain(ask{}); len(got.jobs) != 0 {
			t.Errorf("%v left", got.jobs)
		}
		r.hset("settings", "flow_must_exist", 0)
		r.audit()
		r.pass(second)
		if got := r.drain(ask{}); len(got.jobs) != 1 {
			t.Errorf("%v left", got.jobs)
		}
	})
}
