package scripts_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// fireArg is a fire as a dispatcher tells of it.
type fireArg struct {
	Name   string `json:"name"`
	V      int    `json:"v"`
	Due    string `json:"due"`
	At     string `json:"at"`
	Next   string `json:"next"`
	Manual bool   `json:"manual,omitempty"`
	Skip   bool   `json:"skip,omitempty"`
	Job    string `json:"job,omitempty"`
	By     string `json:"by"`
	Missed int    `json:"missed"`
	First  string `json:"first"`
}

func (f fireArg) text() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}

// define has the bucket have schedules: names and definitions.
func (r *rig) define(revision int, pairs ...string) (changed int64) {
	r.t.Helper()
	changed, _ = r.defineAnd(revision, pairs...)
	return changed
}

// defineAnd is define; it returns the names of those that wait for one of the API, too.
func (r *rig) defineAnd(revision int, pairs ...string) (changed int64, waiting []string) {
	r.t.Helper()
	args := []any{revision, 0, "tundish:wake", "schedules:b", 1 << 53, len(pairs) / 2}
	for i := 0; i < len(pairs); i += 2 {
		args = append(args, pairs[i])
	}
	for _, text := range pairs {
		args = append(args, text)
	}
	in := lua.NewReader(r.run(lua.DefineSchedules, r.keysOf(lua.DefineSchedules), args...))
	in.Int()
	changed = in.Int()
	for in.Left() > 0 {
		waiting = append(waiting, in.Text())
	}
	r.ok(in.Err())
	return changed, waiting
}

// dueNow says what due_schedules.lua names, and when the next one is due.
func (r *rig) dueNow(atMost int) (names []string, next int64) {
	r.t.Helper()
	in := lua.NewReader(r.run(lua.DueSchedules, r.keysOf(lua.DueSchedules), atMost))
	in.Int()
	next = in.Int()
	for in.Left() > 0 && in.Err() == nil {
		names = append(names, in.Text())
		in.Text()
		in.Text()
	}
	r.ok(in.Err())
	return names, next
}

// current has a fire of V 1 be one of the definition in force.
func (r *rig) current(f fireArg) fireArg {
	r.t.Helper()
	if v, ok := r.stateOf(f.Name)["v"].(float64); ok && f.V == 1 {
		f.V = int(v)
	}
	return f
}

func (r *rig) advance(f fireArg, blocked string, pause int64) int64 {
	r.t.Helper()
	f = r.current(f)
	n, _ := r.run(lua.AdvanceSchedule, r.keysOf(lua.AdvanceSchedule), f.text(), blocked, pause).(int64)
	return n
}

// fire runs enqueue.lua for the job of a fire: [0 code] of the job, or [4 0], [4 1].
func (r *rig) fire(f fireArg) string {
	r.t.Helper()
	f = r.current(f)
	keys, _ := r.enqueueKeys(nil, "")
	keys = append(keys, r.keysOf(lua.DueSchedules)...)
	in := lua.NewReader(r.run(lua.Enqueue, keys, "tundish:wake", r.name, "fire", 0, 1, 0, "0q", 1, "", f.Job, "fffffffffffcn001 \nx", 3, 1, "", 1, "", f.text()))
	status := in.Int()
	if status == 0 {
		in.Int()
		in.Int()
	}
	answer := fmt.Sprint(status, in.Int())
	r.ok(in.Err())
	return answer
}

// controlSchedule returns the code of what came of it, and when a fire was asked for.
func (r *rig) controlSchedule(name, action string) string {
	r.t.Helper()
	return r.setSchedule(name, action, "why", 1000)
}

func (r *rig) setSchedule(name, action, text string, most int) string {
	r.t.Helper()
	answer := fmt.Sprint(r.run(lua.ControlSchedule, r.keysOf(lua.ControlSchedule), "tundish:wake", "schedules:b", name, action, "ann", text, most))
	return strings.Replace(answer, "[0 ", "[", 1)
}

func (r *rig) stateOf(name string) map[string]any {
	r.t.Helper()
	var state map[string]any
	if text := r.field("schedules", name+":state"); text != "" {
		r.ok(json.Unmarshal([]byte(text), &state))
	}
	return state
}

// runsOf are the outcomes of the last fires of a schedule, newest first.
func (r *rig) runsOf(name string) string {
	r.t.Helper()
	var runs []string
	for line := range strings.Lines(r.field("schedules", name+":runs")) {
		var one struct {
			Outcome, At, Reason string
			Count               int
		}
		r.ok(json.Unmarshal([]byte(line), &one))
		runs = append(runs, strings.TrimSpace(fmt.Sprint(one.Outcome, " ", one.At, " ", max(one.Count, 1), " ", one.Reason)))
	}
	return strings.Join(runs, ", ")
}

func (r *rig) wants(what, got, want string) {
	r.t.Helper()
	must.Equal(r.t, got, want, "%s", what)
}

const past = "1000000000000001" // microseconds: long before the clock of the tests, and sixteen digits

func TestFireOfASchedule(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 2, revision: 3})
		r.define(3, "a", "when\n{}", "b", "when\n{}")
		names, _ := r.dueNow(16)
		r.wants("new schedules are to be reckoned", fmt.Sprint(names), "[a b]")

		plan := fireArg{Name: "a", V: 1, Due: "0", Next: past}
		r.wants("reckon", fmt.Sprint(r.advance(plan, "", 0), r.advance(plan, "", 0)), "1 0")
		fire := fireArg{Name: "a", V: 1, Due: past, At: past, Next: "9000000000000003", Job: "one", By: "d1"}
		r.wants("fire", r.fire(fire), "0 1")
		r.wants("fire again", r.fire(fire), "4 0")
		must.Equal(t, r.hlen("body"), 1, "jobs, want one")
		r.wants("due", fmt.Sprint(r.stateOf("a")["due"], r.stateOf("a")["last"]), "9000000000000003"+past)
		names, next := r.dueNow(1)
		r.wants("what is left", fmt.Sprint(names, next), "[b] 9000000000000003")

		// Full: the fire stays due, and is looked at again after a pause.
		r.put("x")
		full := fireArg{Name: "b", V: 1, Due: past, At: past, Next: "", Job: "two", By: "d2"}
		r.advance(fireArg{Name: "b", V: 1, Due: "0", Next: past}, "", 0)
		r.wants("full", r.fire(full), "0 7")
		r.wants("blocked", fmt.Sprint(r.advance(full, "bucket-full", second)), "1")
		names, next = r.dueNow(16)
		if len(names) != 0 || next == 0 {
			t.Errorf("while it pauses %v are due, then %d", names, next)
		}
		full.Missed, full.First, full.At, full.Due = 3, past, "1000000000000005", past
		r.wants("given up", fmt.Sprint(r.advance(full, "", 0)), "1")
		r.wants("runs", r.runsOf("b"), "missed "+past+" 3 bucket-full")
		if r.stateOf("b")["blocked"] != nil || fmt.Sprint(r.c.ZScore(r.ctx, r.key("schedule_due"), "b").Val()) != "9.007199254740991e+15" {
			t.Errorf("state %v", r.stateOf("b"))
		}
	})
}

func TestOverlapSkips(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.define(0, "a", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		times := []string{past, "1000000000000002", "1000000000000003", "1000000000000004"}
		fire := func(n int) string {
			return r.fire(fireArg{Name: "a", V: 1, Due: times[n], At: times[n], Next: times[n+1], Skip: true, Job: fmt.Sprint("job", n)})
		}
		r.wants("first", fire(0), "0 1")
		r.wants("the first is unfinished", fire(1), "4 1")
		r.cancel("job0", "")
		r.wants("the first is cancelled", fire(2), "0 1")
		r.wants("runs", r.runsOf("a"), "fired 1000000000000003 1, skipped 1000000000000002 1 overlap, fired "+past+" 1")
	})
}

func TestControlOfASchedule(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.define(0, "a", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		r.wants("unknown", r.controlSchedule("z", "pause"), "[2 0]")
		r.wants("pause", r.controlSchedule("a", "pause")+r.controlSchedule("a", "pause"), "[1 0][0 0]")
		r.wants("a fire while it is paused", r.fire(fireArg{Name: "a", V: 1, Due: past, At: past, Next: past, Job: "j"}), "4 0")
		if names, next := r.dueNow(16); len(names) != 0 || next != 0 {
			t.Errorf("paused, and due: %v, then %d", names, next)
		}
		r.controlSchedule("a", "fire")
		asked := fmt.Sprint(r.stateOf("a")["manual"])
		again := r.controlSchedule("a", "fire")
		r.wants("a second request is the same", again, "[0 "+asked+"]")
		manual := fireArg{Name: "a", V: 1, Due: asked, At: asked, Manual: true, Job: "m"}
		r.wants("a fire that was asked for", r.fire(manual)+r.fire(manual), "0 14 0")
		r.wants("due stays", fmt.Sprint(r.stateOf("a")["due"]), past)
		r.wants("resume", r.controlSchedule("a", "resume"), "[1 0]")
		r.wants("due is reckoned anew", fmt.Sprint(r.stateOf("a")["due"]), "0")
	})
}

func TestDefineSchedules(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{revision: 3})
		r.define(3, "a", "when\n{}", "b", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		r.advance(fireArg{Name: "b", V: 1, Due: "0", Next: past}, "", 0)
		r.controlSchedule("b", "pause")
		must.Equal(t, r.define(2, "c", "when\n{}"), 0, "an older configuration has changed")
		must.Equal(t, r.define(3, "a", "when\n{}", "b", "when\n{}"), 0, "the same again has changed")
		before := r.current(fireArg{Name: "a", V: 1}).V
		r.define(3, "a", "when\n{1}", "b", "then\n{}")
		r.wants("another payload", fmt.Sprint(r.stateOf("a")["due"], r.current(fireArg{Name: "a", V: 1}).V > before), past+"true")
		r.wants("another time", fmt.Sprint(r.stateOf("b")["due"], r.stateOf("b")["paused_by"]), "0ann")
		r.wants("a fire of the definition before", r.fire(fireArg{Name: "a", V: before, Due: past, At: past, Next: past, Job: "j"}), "4 0")
		r.define(4, "b", "then\n{}")
		r.pass(1000)
		r.define(4, "a", "when\n{}", "b", "then\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		r.wants("the same after a schedule went and came", r.fire(fireArg{Name: "a", V: before, Due: past, At: past, Next: past, Job: "j"}), "4 0")
		r.define(4, "b", "then\n{}")
		fields := r.c.HKeys(r.ctx, r.key("schedules")).Val()
		if n := r.zcard("schedule_due"); len(fields) != 2 || n != 1 {
			t.Errorf("left are %v", fields)
		}
	})
}

// The history keeps the last twenty fires.
func TestHistoryIsBounded(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.define(0, "a", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: "1"}, "", 0)
		for n := 1; n <= 30; n++ {
			r.advance(fireArg{Name: "a", V: 1, Due: fmt.Sprint(n), Next: fmt.Sprint(n + 1), Missed: 1, First: fmt.Sprint(n)}, "", 0)
		}
		runs := strings.Split(r.runsOf("a"), ", ")
		if len(runs) != 20 || runs[0] != "missed 30 1 late" || fmt.Sprint(r.stateOf("a")["missed"]) != "30" {
			t.Errorf("%d runs, the newest %s", len(runs), runs[0])
		}
	})
}

// A schedule that was made through the API stays, whatever configurations say, until it is removed. One of the configuration with its
// name waits so long.
func TestSchedulesOfTheAPI(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.wants("before the bucket is configured", r.controlSchedule("a", "set"), "[1]")
		r.configure(settings{revision: 3})
		r.define(3, "c", "when\n{}")
		set := func(name, text string) string { return r.setSchedule(name, "set", text, 2) }
		r.wants("made, and sent twice", set("a", "when\n{}")+set("a", "when\n{}"), "[1 0][0 0]")
		r.wants("too many", set("b", "when\n{}"), "[4 0]")
		r.wants("one of the configuration", set("c", "then\n{}")+r.controlSchedule("c", "remove"), "[3 0][3 0]")
		if made := r.field("schedules", "a:made"); !strings.HasSuffix(made, " ann") {
			t.Errorf("it was made by %q", made)
		}
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		r.wants("another payload, while it is paused", r.controlSchedule("a", "pause")+set("a", "when\n{1}"), "[1 0][1 0]")
		r.wants("due and pause stay", fmt.Sprint(r.stateOf("a")["due"], r.stateOf("a")["paused_by"]), past+"ann")
		r.wants("another time", set("a", "then\n{1}")+fmt.Sprint(r.stateOf("a")["due"]), "[1 0]0")

		if changed, waiting := r.defineAnd(4, "c", "when\n{}"); changed != 0 || waiting != nil {
			t.Errorf("a reload without it has changed %d, waiting are %v", changed, waiting)
		}
		if changed, waiting := r.defineAnd(4, "a", "mine\n{}"); changed != 1 || fmt.Sprint(waiting) != "[a]" {
			t.Errorf("a reload with its name has changed %d, waiting are %v", changed, waiting)
		}
		r.wants("the one of the API is in force", r.field("schedules", "a"), "then\n{1}")
		r.wants("removed", r.controlSchedule("a", "remove"), "[1 0]")
		r.wants("that of the configuration comes", r.field("schedules", "a"), "mine\n{}")
		r.wants("removed again", r.controlSchedule("a", "remove"), "[3 0]")
		r.define(4, "a", "mine\n{2}")
		r.wants("it is as any of the configuration", r.field("schedules", "a"), "mine\n{2}")

		set("b", "when\n{}")
		r.define(4, "a", "mine\n{2}", "b", "mine\n{}")
		r.define(4)
		r.wants("a reload without either", fmt.Sprint(slices.Sorted(slices.Values(r.c.HKeys(r.ctx, r.key("schedules")).Val()))), "[b b:made b:state]")
		r.wants("removed, and sent twice", r.controlSchedule("b", "remove")+r.controlSchedule("b", "remove"), "[1 0][2 0]")
		must.Equal(t, r.exists("schedules", "schedule_due"), 0, "keys are left")
	})
}

// What is due is made anew where it is lost, as in a change of the pool, whatever the revision is; a part in each run.
func TestDueIsMadeAnew(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{revision: 3})
		const n = 250
		for i := range n {
			r.setSchedule(fmt.Sprint("s", i), "set", "when\n{}", n)
		}
		r.controlSchedule("s7", "pause")
		before := r.scored("schedule_due")
		r.del("schedule_due")
		var answers []string
		for range 3 {
			answers = append(answers, fmt.Sprint(r.run(lua.DefineSchedules, r.keysOf(lua.DefineSchedules), 1, 0, "tundish:wake", "schedules:b", 1<<53, 0)))
		}
		r.wants("answers", fmt.Sprint(answers), "[[3 100] [3 100] [1 50]]")
		r.wants("what is due", fmt.Sprint(r.scored("schedule_due")), fmt.Sprint(before))
	})
}

// The history tells how the jobs of fires ended, as long as that is remembered.
func TestJobsOfTheHistory(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{dedupe: second})
		r.define(0, "a", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: "1"}, "", 0)
		ask := func() (states []string) {
			in := lua.NewReader(r.run(lua.ScheduleRuns, r.keysOf(lua.ScheduleRuns), "a"))
			for in.Left() > 0 && in.Err() == nil {
				in.Text()
				states = append(states, fmt.Sprint(in.Int()))
			}
			r.ok(in.Err())
			return states
		}
		for n := range 4 {
			r.fire(fireArg{Name: "a", V: 1, Due: fmt.Sprint(n + 1), At: fmt.Sprint(n + 1), Next: fmt.Sprint(n + 2), Job: fmt.Sprint("job", n)})
		}
		r.advance(fireArg{Name: "a", V: 1, Due: "5", Next: "6", Missed: 1, First: "5"}, "", 0)
		r.cancel("job0", "")
		r.hset("meta", "job1", "5 1 1 0 0 - {}")
		r.wants("newest first", fmt.Sprint(ask()), "[-1 1 1 5 7]")
		r.wants("unknown", fmt.Sprint(r.run(lua.ScheduleRuns, r.keysOf(lua.ScheduleRuns), "z")), "[]")
		r.pass(2 * second)
		r.wants("after the dedupe window", fmt.Sprint(ask()), "[-1 1 1 5 0]")
	})
}
