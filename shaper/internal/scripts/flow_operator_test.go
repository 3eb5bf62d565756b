package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

func TestCancelInFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		r.place(
			placed{id: "queued", flow: "a"}, placed{id: "scheduled", flow: "a", state: isScheduled, in: second, scheduled: true},
			placed{id: "retrying", flow: "a", state: isRetrying, in: second}, placed{id: "dead", flow: "a", state: isDead},
			placed{id: "flying", flow: "a", state: isInFlight, in: second},
		)
		keys := r.keysOf(lua.Cancel, "b")
		must.Equal[any](t, r.run(lua.Cancel, keys, "queued", "", 1, "b"), int64(-2), "by the wrong flow")
		must.Equal[any](t, r.run(lua.Cancel, keys, "queued", "", 0, ""), int64(-1), "as if there were no flows")
		for i, want := range []string{"2 1 1", "2 0 1", "1 0 1", "1 0 1", "1 0 1"} {
			id := []string{"queued", "scheduled", "retrying", "dead", "flying"}[i]
			state := ""
			if id == "dead" {
				state = "5"
			}
			for range 2 {
				r.cancel(id, state)
				must.Equal(t, r.counts("a"), want, "after %s: counters", id)
			}
		}
		r.place(placed{id: "last", flow: "c"})
		if r.cancel("last", ""); r.counts("c") != "" {
			t.Errorf("counters %q of a flow that is idle", r.counts("c"))
		}
	})
}

// Redriven jobs obey the bound of their flow, and that of the number of flows.
func TestRedriveInFlows(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{capacity: 9}, flowSettings{capacity: 3, maxFlows: 3})
		r.own("c", "- - - 1 - - -")
		r.place(
			placed{id: "a0", flow: "a"}, placed{id: "b0", flow: "b", state: isInFlight, in: second},
			placed{id: "a1", flow: "a", state: isDead, priority: 1}, placed{id: "a2", flow: "a", state: isDead, scheduled: true},
			placed{id: "a3", flow: "a", state: isDead}, placed{id: "b1", flow: "b", state: isDead},
			placed{id: "c1", flow: "c", state: isDead}, placed{id: "c2", flow: "c", state: isDead},
			placed{id: "d1", flow: "d", state: isDead},
		)
		r.setTurn("a", 7)
		began := r.now()
		if got := r.redrive("a1", "a2", "a3", "b1", "c1", "c2", "d1", "a0", "a1", "nobody"); fmt.Sprint(got) != "[1 1 4 1 1 4 4 0 3 0]" {
			t.Errorf("redriven %v", got)
		}
		if got := fmt.Sprintf("[%s] [%s] [%s] [%s]", r.list("critical", "a"), r.list("normal", "a"), r.list("normal", "b"), r.list("normal", "c")); got !=
			"[a1] [a0 a2] [b1] [c1]" {
			t.Errorf("lists %s", got)
		}
		if a, b, c, d := r.counts("a"), r.counts("b"), r.counts("c"), r.counts("d"); a != "3 0 0" || b != "2 0 1" || c != "1 0 0" || d != "" {
			t.Errorf("counters %q %q %q %q", a, b, c, d)
		}
		if a, b := r.turn("a"), r.turn("b"); a != 7 || b < began || b > r.now() {
			t.Errorf("turns %d and %d", a, b)
		}
		if b := r.inspect(); b.dead != 3 || b.unfinished != 6 || b.scheduled != 0 {
			t.Errorf("bucket %+v", b)
		}
	})
}

// What a job of a flow is told to wait for.
func TestInspectJobInFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 10}, flowSettings{rateCount: 1, ratePer: 4 * second, inFlight: 7})
		r.hset("settings", "quotas", "2 60000000;", "flow_quotas", "1 3000000;3 50000000;")
		r.place(
			placed{id: "n1", flow: "a"}, placed{id: "b1", flow: "b"}, placed{id: "n2", flow: "a"}, placed{id: "k1", flow: "a", priority: 1},
			placed{id: "f1", flow: "a", state: isInFlight, in: second},
		)
		now := r.now()
		f := r.flow("a")
		f.slot = now - second
		r.setState("a", f)
		j := r.job("n2")
		if j.position != 2 || j.hasFlows != 1 || j.quota != 0 || j.ofFlow.quota != 0 || j.ofFlow.inFlight != 1 || j.ofFlow.most != 7 ||
			j.ofFlow.ready != now+3*second || j.ofFlow.paused != 0 || j.instant != now+61_300_000 { // the bucket lets two leave in 61.2 s
			t.Errorf("n2: %+v, now %d", j, now)
		}
		if j := r.job("b1"); j.position != 0 || j.ofFlow.ready != 0 || j.ofFlow.inFlight != 0 {
			t.Errorf("b1: %+v", j)
		}
		// Departures, the newest first.
		r.rpush("departed", now-second, now-20*second, now-90*second)
		r.rpush("departed:a", now-second, now-20*second, now-40*second)
		if j := r.job("n1"); j.quota != now+41_200_000 || j.ofFlow.quota != now+11*second || j.position != 1 || j.instant != now+60_200_000 {
			t.Errorf("n1: %+v, now %d", j, now)
		}
		if j := r.job("b1"); j.ofFlow.quota != 0 || j.quota != now+41_200_000 || j.instant != j.quota {
			t.Errorf("b1: %+v", j)
		}
		r.controlFlow("a", "pause", `{"by":"anna"}`)
		if j := r.job("n1"); j.ofFlow.paused < now || j.ofFlow.note != `{"by":"anna"}` || j.instant != 0 {
			t.Errorf("paused: %+v", j)
		}
	})
}

// Behind the first thousand a position is an estimate by the numbers of the jobs at both
// ends of the list.
func TestPositionInALongList(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 5000})
		for i := range 3000 {
			r.hset("body", fmt.Sprint("j", i), fmt.Sprintf("%d 1 00000000000cn001 \nx", 2*i))
			r.rpush(queueKey, fmt.Sprint("j", i))
		}
		for _, i := range []int64{0, 999, 1000, 1500, 2999} {
			if got := r.job(fmt.Sprint("j", i)).position; got != i {
				t.Errorf("j%d: position %d", i, got)
			}
		}
	})
}

func TestControlFlow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		run := func(flow, action string, args ...any) any {
			return r.run(lua.ControlFlow, r.keysOf(lua.ControlFlow, flow),
				append([]any{"tundish:wake", r.name, flow, action}, args...)...)
		}
		if got := run("f", "resume"); fmt.Sprint(got) != "[1]" {
			t.Errorf("not configured: %v", got)
		}
		r.configure(settings{})
		if got, ok := run("f", "pause", "{}").([]any); !ok || len(got) != 8 || got[2] != int64(0) {
			t.Errorf("without flows: %v", got)
		}
		r.configureFlows(settings{}, flowSettings{rateCount: 1, ratePer: 4 * second, inFlight: 1})
		change := func(want, action string, args ...any) {
			t.Helper()
			for range 2 { // sent twice it comes to the same
				if _, after := r.controlFlow("f", action, args...); strings.ReplaceAll(after, "\n", "|") != want {
					t.Errorf("%s %v: %q, want %q", action, args, after, want)
				}
			}
		}
		change("1 2 - - - - -|-|-|-|-", "set", 1, 2, "", "", "", "", "", "", "")
		change(`1 2 - 5 - 3 -|-|-|{"a":"b"}|["s"]`, "set", "", "", "-", 5, "-", 3, "", `{"a":"b"}`, `["s"]`)
		change(`- - - 5 - 3 -|-|"url"|-|["s"]`, "set", "-", "-", "", "", "", "", `"url"`, "-", "")
		change("", "reset")
		// A list is changed, not replaced. What comes is in front, and what is there stays in its place.
		lacks := []any{"", "", "", "", "", "", "", ""}
		list := func(want, text string) {
			t.Helper()
			change(`- - - - - - -|-|-|-|`+want, "set", append(lacks, text)...)
		}
		list(`["old"]`, `~{"put":["old"],"most":3}`)
		list(`["new","old"]`, `~{"put":["new"],"most":3}`)
		list(`["new","old"]`, `~{"put":["old"],"drop":["none"],"most":3}`)
		list(`["new"]`, `~{"put":[],"drop":["old"],"most":3}`)
		list(`["a\"\\é☃","new"]`, `~{"put":["a\"\\é☃","new"],"most":3}`)
		if before, after := r.controlFlow("f", "set", append(lacks, `~{"put":["a","b"],"most":3}`)...); after != before {
			t.Errorf("a list of 4, where 3 may be: %q, then %q", before, after)
		}
		change("", "set", append(lacks, `~{"drop":["a\"\\é☃","new"],"most":3}`)...)
		change("9 8 - - - - -|-|-|-|-", "set", 9, 8, "", "", "", "", "", "", "")
		_, first := r.controlFlow("f", "pause", `{"by":"anna"}`)
		if _, again := r.controlFlow("f", "pause", `{"by":"otto"}`); strings.Fields(again)[6] != strings.Fields(first)[6] ||
			!strings.Contains(again, `{"by":"otto"}`) {
			t.Errorf("paused again: %q, then %q", first, again)
		}
		if _, after := r.controlFlow("f", "reset"); !strings.HasPrefix(after, "- - - - - - 1") {
			t.Errorf("a reset leaves %q: the pause is to stay", after)
		}
		change("", "resume")
	})
}

// A flow that may go by what an operator changed is put in the turn queue.
func TestControlFlowAndTheCalendar(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{rateCount: 1, ratePer: 100 * second, inFlight: 1})
		now := r.now()
		r.place(placed{id: "w", flow: "f"}, placed{id: "x", flow: "f", state: isInFlight, in: 60 * second},
			placed{id: "y", flow: "g", state: isScheduled, scheduled: true, in: 30 * second})
		f := r.flow("f")
		f.slot = now
		r.setState("f", f)
		steps := []struct {
			flow   string
			action string
			args   []any
			want   int64 // its turn, from now on; -1 none
			wakes  bool
		}{
			{"f", "set", []any{"", "", "", 7}, -1, false},
			{"f", "set", []any{"", "", "", "", 2}, 100 * second, true},
			{"f", "set", []any{1, 10 * second}, 10 * second, true},
			{"f", "set", []any{1, 20 * second}, 10 * second, false}, // claim finds out that it is too early
			{"f", "pause", []any{"{}"}, 10 * second, false},         // and that it is paused
			{"g", "resume", nil, 30 * second, true},
			{"f", "resume", nil, 10 * second, true},
			{"nobody", "resume", nil, -1, true},
		}
		for i, s := range steps {
			wakes := r.wakes(func() { r.controlFlow(s.flow, s.action, s.args...) })
			turn := r.turn(s.flow)
			if wakes != s.wakes || s.want < 0 && turn != 0 || s.want >= 0 && (turn < now+s.want || turn > r.now()+s.want) {
				t.Errorf("step %d, %s: turn in %d µs, wakes %t", i, s.action, turn-now, wakes)
			}
		}
		r.del("due:") // claim has met it
		if r.controlFlow("f", "pause", "{}"); r.turn("f") != 0 {
			t.Error("a paused flow is in the turn queue")
		}
		if r.controlFlow("f", "resume"); r.turn("f") == 0 {
			t.Error("a flow that was resumed is not in the turn queue")
		}
	})
}

// A redrive that leaves a tenth of the places free leaves a tenth of each: of the flow, and of what jobs of priority low may fill of the
// bucket. A bound too small for a
// tenth is filled.
func TestRedriveSpares(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{capacity: 20}, flowSettings{capacity: 10, maxFlows: 9})
		r.own("c", "- - - 1 - - -")
		var jobs []placed
		for _, flow := range []string{"a", "b"} {
			for i := range 10 {
				jobs = append(jobs, placed{id: fmt.Sprint(flow, i), flow: flow, state: isDead})
			}
		}
		jobs = append(jobs, placed{id: "c0", flow: "c", state: isDead})
		r.place(jobs...)
		var ids []string
		for _, job := range jobs {
			ids = append(ids, job.id)
		}
		must.Equal(t, fmt.Sprint(r.redriveSparing(10, ids...)), "[1 1 1 1 1 1 1 1 1 4 1 1 1 1 1 1 1 1 1 2 2]", "redriven")
		r.hset("settings", "shed_low", 95) // jobs of priority low may fill 19: 18 of these
		must.Equal(t, fmt.Sprint(r.redriveSparing(10, "b9")), "[2]", "shedding")
		r.cancel("a0", "")
		must.Equal(t, fmt.Sprint(r.redriveSparing(10, "b9", "c0")), "[4 1]", "shedding, with a place")
		r.hset("settings", "shed_low", 50)
		r.cancel("a1", "")
		must.Equal(t, fmt.Sprint(r.redriveSparing(10, "a9")), "[2]", "shedding more")
		must.Equal(t, fmt.Sprint(r.redrive("a9", "b9")), "[1 1]", "by ids")
	})
}

func TestRedriveSparesNothingOfASmallBucket(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{capacity: 1})
		r.kill("only")
		must.Equal(t, r.redriveSparing(10, "only")[0], 1, "into the only place")
	})
}
