package lua_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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
	var names, all []any
	for i := 0; i < len(pairs); i += 2 {
		names, all = append(names, pairs[i]), append(all, pairs[i], pairs[i+1])
	}
	for action, rest := range map[string][]any{"keep": names, "put": all} {
		in := lua.NewReader(r.run(lua.DefineSchedules, r.fixed(lua.DefineSchedules), append([]any{revision, 0, "tundish:wake", "schedules:b", action}, rest...)...))
		in.Int()
		changed += in.Int()
		r.ok(in.Err())
	}
	return changed
}

// dueNow says what due_schedules.lua names, and when the next one is due.
func (r *rig) dueNow(atMost int) (names []string, next int64) {
	r.t.Helper()
	in := lua.NewReader(r.run(lua.DueSchedules, r.fixed(lua.DueSchedules), atMost))
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

func (r *rig) advance(f fireArg, blocked string, pause int64) int64 {
	r.t.Helper()
	n, _ := r.run(lua.AdvanceSchedule, r.fixed(lua.AdvanceSchedule), f.text(), blocked, pause).(int64)
	return n
}

// fire runs enqueue.lua for the job of a fire: [0 code] of the job, or [4 0], [4 1].
func (r *rig) fire(f fireArg) string {
	r.t.Helper()
	keys := append(r.enqueueKeys(nil, ""), r.fixed(lua.DueSchedules)...)
	in := lua.NewReader(r.run(lua.Enqueue, keys, "tundish:wake", r.name, "fire", 0, 1, 0, 0, 1, "", f.Job, "fffffffffffcn001 \nx", 3, 1, "", 1, "", f.text()))
	status := in.Int()
	if status == 0 {
		in.Int()
		in.Int()
	}
	answer := fmt.Sprint(status, in.Int())
	r.ok(in.Err())
	return answer
}

func (r *rig) controlSchedule(name, action string) string {
	r.t.Helper()
	return fmt.Sprint(r.run(lua.ControlSchedule, r.fixed(lua.ControlSchedule), "tundish:wake", "schedules:b", name, action, "ann", "why"))
}

func (r *rig) stateOf(name string) map[string]any {
	r.t.Helper()
	var state map[string]any
	r.ok(json.Unmarshal([]byte(r.c.HGet(r.ctx, r.key("schedules"), name+":state").Val()), &state))
	return state
}

// runsOf are the outcomes of the last fires of a schedule, newest first.
func (r *rig) runsOf(name string) string {
	r.t.Helper()
	var runs []string
	for line := range strings.Lines(r.c.HGet(r.ctx, r.key("schedules"), name+":runs").Val()) {
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
	if got != want {
		r.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

const past = "1000000000000001" // microseconds: long before the clock of the tests, and sixteen digits

func TestFireOfASchedule(t *testing.T) {
	t.Parallel()
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
		if n := r.c.HLen(r.ctx, r.key("body")).Val(); n != 1 {
			t.Errorf("%d jobs, want one", n)
		}
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
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
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
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.define(0, "a", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		r.wants("unknown", r.controlSchedule("z", "pause"), "[]")
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
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{revision: 3})
		r.define(3, "a", "when\n{}", "b", "when\n{}")
		r.advance(fireArg{Name: "a", V: 1, Due: "0", Next: past}, "", 0)
		r.advance(fireArg{Name: "b", V: 1, Due: "0", Next: past}, "", 0)
		r.controlSchedule("b", "pause")
		if changed := r.define(2, "c", "when\n{}"); changed != 0 {
			t.Errorf("an older configuration has changed %d", changed)
		}
		if changed := r.define(3, "a", "when\n{}", "b", "when\n{}"); changed != 0 {
			t.Errorf("the same again has changed %d", changed)
		}
		r.define(3, "a", "when\n{1}", "b", "then\n{}")
		r.wants("another payload", fmt.Sprint(r.stateOf("a")["due"], r.stateOf("a")["v"]), past+"2")
		r.wants("another time", fmt.Sprint(r.stateOf("b")["due"], r.stateOf("b")["paused_by"]), "0ann")
		r.wants("a fire of the definition before", r.fire(fireArg{Name: "a", V: 1, Due: past, At: past, Next: past, Job: "j"}), "4 0")
		r.define(4, "b", "then\n{}")
		fields := r.c.HKeys(r.ctx, r.key("schedules")).Val()
		if n := r.c.ZCard(r.ctx, r.key("schedule_due")).Val(); len(fields) != 2 || n != 1 {
			t.Errorf("left are %v", fields)
		}
	})
}

// The history keeps the last twenty fires.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
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
