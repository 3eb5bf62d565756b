package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// Leases of several flows that ran out go back to the heads of their lists, in the
// order of admission, and the flows to the calendar.
func TestSweepOfFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{inFlight: 9})
		for i, flow := range oddFlows {
			id := func(name string) string { return fmt.Sprint(name, i) }
			r.place(
				placed{id: id("a"), flow: flow, state: isInFlight, in: -1},
				placed{id: id("b"), flow: flow, state: isInFlight, in: -3, priority: 1},
				placed{id: id("c"), flow: flow, state: isInFlight, in: -2, scheduled: true},
				placed{id: id("d"), flow: flow, state: isInFlight, in: -9},
				placed{id: id("poison"), flow: flow, state: isInFlight, in: -1, crashes: lastChance},
				placed{id: id("latePoison"), flow: flow, state: isInFlight, in: -1, crashes: lastChance, scheduled: true},
				placed{id: id("flying"), flow: flow, state: isInFlight, in: 60 * second},
				placed{id: id("waits"), flow: flow},
			)
		}
		r.pass(0)
		var s swept
		if !r.wakes(func() { s = r.sweep(sweep{}) }) {
			t.Error("nobody was woken")
		}
		if n := int64(len(oddFlows)); s.takenBack != 4*n || s.poison != 2*n || s.missing != 0 {
			t.Errorf("swept %+v", s)
		}
		for i, flow := range oddFlows {
			want := fmt.Sprintf("[b%d] [a%d c%d d%d waits%d]", i, i, i, i, i)
			must.Equal(t, fmt.Sprintf("[%s] [%s]", r.list("critical", flow), r.list("normal", flow)), want, "flow %q: lists", flow)
			must.Equal(t, r.counts(flow), "5 1 1", "flow %q: counters", flow)
			if r.turn(flow) == 0 {
				t.Errorf("flow %q is not in the turn queue", flow)
			}
		}
		if again := r.sweep(sweep{}); again.takenBack+again.poison != 0 {
			t.Errorf("swept again: %+v", again)
		}
	})
}

// Between the two scripts of a sweep jobs live on: what is not lost any more is left.
func TestTakeBackLooksAgain(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		jobs := []placed{{id: "lost"}, {id: "extended"}, {id: "settled"}, {id: "other"}, {id: "stepped"}}
		var ids []string
		for i := range jobs {
			jobs[i].flow, jobs[i].state, jobs[i].in = "f", isInFlight, -1
			r.place(jobs[i])
			ids = append(ids, jobs[i].id)
		}
		found := r.find(sweep{})
		if fmt.Sprint(len(found.ids)) != "5" || found.takenBack != 0 || r.inspect().inFlight != 5 {
			t.Fatalf("found %+v", found)
		}
		if got := r.extend(9*second, jobs[1].lease()); got[0] != 1 {
			t.Errorf("extended %v", got)
		}
		r.settle(outcome{lease: jobs[2].lease(), result: done})
		r.settle(outcome{lease: jobs[3].lease(), result: done})
		r.place(placed{id: "other", flow: "g", state: isInFlight, in: 9 * second}) // the id again, another flow
		if n, _, _, _ := r.takeBack(sweep{bound: r.now() - second}, ids, nil); n != 0 {
			t.Errorf("took back %d beyond the bound", n)
		}
		// A caller that names the wrong flow changes nothing: nobody's places but the job's are right.
		r.hset("body", "stepped", `4 1 00000000000cn001 {"f":"h"}`+"\nx")
		if n, _, _, _ := r.takeBack(sweep{}, []string{"lost", "extended", "settled", "other"}, nil); n != 1 {
			t.Errorf("took back %d", n)
		}
		must.Equal(t, r.list("normal", "f"), "lost", "the list is")
		if f, g := r.counts("f"), r.counts("g"); f != "3 0 2" || g != "1 0 1" {
			t.Errorf("counters %q and %q", f, g)
		}
	})
}

// Keys that somebody deleted are made good, in flows too.
func TestRepairOfFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{inFlight: 1})
		r.place(
			placed{id: "retrying", flow: "a", state: isRetrying, in: 60 * second},
			placed{id: "flying", flow: "a", state: isInFlight, in: 60 * second},
			placed{id: "dying", flow: "a", state: isDead},
			placed{id: "waiting", flow: "b"},
			placed{id: "scheduled", flow: "c", state: isScheduled, in: 60 * second, scheduled: true},
			placed{id: "paused", flow: "d"},
		)
		r.own("d", "- - - - - - 17")
		r.hset("pace", "lease", 30*second)
		for _, flow := range []string{"b", "c"} {
			r.setTurn(flow, 1)
		}
		look := sweep{cursor: "0", flowCursor: "0"}
		if s := r.sweep(look); s.repaired+s.takenBack+s.missing != 0 || s.cursor != "0" || s.flowCursor != "0" {
			t.Fatalf("a sound bucket: %+v", s)
		}
		for _, key := range []string{"leases", "dead", "later:a", "due:"} {
			r.del(key)
		}
		if f := r.find(look); fmt.Sprint(f.ids, len(f.flows)) != "[retrying] 2" {
			t.Errorf("found %+v", f)
		}
		began := r.now()
		if s := r.sweep(look); s.repaired != 1 || s.missing != 0 { // the lease and the dead letter were made good before
			t.Errorf("swept %+v", s)
		}
		r.wantStates(map[string]int64{"retrying": isRetrying, "flying": isInFlight, "dying": isDead, "waiting": isQueued, "scheduled": isScheduled})
		must.Equal(t, r.laterOf("a"), "retrying", "later of a is")
		if b, c := r.turn("b"), r.turn("c"); b < began || b > r.now() || c < began+59*second || c > r.now()+60*second {
			t.Errorf("turns of b and c in %d and %d µs", b-began, c-began)
		}
		if r.turn("a") != 0 || r.turn("d") != 0 {
			t.Error("flows that are held back are in the turn queue")
		}
		// A list that is gone is missed, and does not fill its flow for ever.
		r.del("q:normal:b", "due:")
		if s := r.sweep(look); s.missing != 1 || r.counts("b") != "" {
			t.Errorf("swept %+v, counters %q", s, r.counts("b"))
		}
		if s := r.sweep(look); s.missing != 0 {
			t.Errorf("swept again %+v", s)
		}
	})
}

// A counter of leases that there are not any more would hold a flow back for ever.
func TestRepairOfInFlight(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{inFlight: 1})
		r.place(placed{id: "w", flow: "f"}, placed{id: "x", flow: "g", state: isInFlight, in: 60 * second})
		r.setState("f", flowState{unfinished: 3, inFlight: 2})
		look := sweep{flowCursor: "0"}
		if s := r.sweep(look); s.missing != 0 || r.counts("f") != "3 0 2" || r.turn("f") != 0 {
			t.Errorf("swept %+v, counters %q", s, r.counts("f"))
		}
		r.settle(outcome{lease: placed{id: "x", flow: "g"}.lease(), result: done})
		if r.sweep(look); r.counts("f") != "3 0 0" || r.turn("f") == 0 {
			t.Errorf("counters %q, turn %d", r.counts("f"), r.turn("f"))
		}
	})
}

// The sweep goes through any number of flows, and drops those that are idle.
func TestSweepOfManyFlows(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		n := 3000
		if r.mini != nil {
			n = 300 // it gives all at once
		}
		r.configureFlows(settings{}, flowSettings{})
		for i := range n {
			r.setState(fmt.Sprint("idle", i), flowState{slot: r.now() - second})
		}
		r.place(placed{id: "j", flow: "f", state: isInFlight, in: second})
		cursor, rounds := "0", 0
		for ; rounds == 0 || cursor != "0"; rounds++ {
			cursor = r.sweep(sweep{flowCursor: cursor}).flowCursor
		}
		if b := r.inspect(); b.flows != 1 || r.mini == nil && rounds < 3 {
			t.Errorf("%d flows are left after %d rounds", b.flows, rounds)
		}
	})
}

// A purge of a flow takes what is there of it, and nothing of another.
func TestPurgeOfAFlow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		for _, flow := range []string{"a", `b "`} {
			for priority := range 5 {
				r.place(placed{id: fmt.Sprintf("j%d%d", priority, len(flow)), flow: flow, priority: priority})
			}
			r.place(
				placed{id: fmt.Sprint("scheduled", len(flow)), flow: flow, state: isScheduled, in: 60 * second, scheduled: true},
				placed{id: fmt.Sprint("retrying", len(flow)), flow: flow, state: isRetrying, in: 60 * second},
				placed{id: fmt.Sprint("flying", len(flow)), flow: flow, state: isInFlight, in: 60 * second},
			)
		}
		// An id that was cancelled in one flow and used again in the other is the other's job.
		r.place(placed{id: "moved", flow: `b "`})
		r.cancelDeep("moved")
		r.place(placed{id: "moved", flow: "a"})

		if p := r.purge(purge{id: "p", flow: `b "`, atMost: 3}); !p.own || p.removed != 3 || p.left != 5 {
			t.Fatalf("the first chunk: %+v", p)
		}
		r.wantStates(map[string]int64{"j03": isCancelled, "j43": isCancelled, "scheduled3": isCancelled, "retrying3": isCancelled,
			"flying3": isInFlight, "j01": isQueued, "scheduled1": isScheduled, "moved": isQueued})
		if b := r.inspect(); b.unpurged != 5 || b.waiting != 7 { // the id of a job that is none any more counts as one
			t.Errorf("bucket %+v", b)
		}
		if s := r.sweep(sweep{cursor: "0", flowCursor: "0"}); s.repaired != 0 || s.missing != 0 || s.unpurged != 0 {
			t.Errorf("swept %+v", s)
		}
		// Whoever goes on with it need not know the flow: another purge, or the sweeper.
		if p := r.purge(purge{id: "q", flow: "a", atMost: 2}); p.own || p.removed != 1 || p.done != 4 || p.left != 3 {
			t.Errorf("another purge: %+v", p)
		}
		if p := r.purgeAll(purge{}); p.own || p.done != 7 {
			t.Errorf("the sweeper's: %+v", p)
		}
		if a, b := r.counts("a"), r.counts(`b "`); a != "8 1 1" || b != "1 0 1" {
			t.Errorf("counters %q and %q", a, b)
		}
		if p := r.purgeAll(purge{id: "r", flow: "a", keepLater: true}); p.done != 6 || r.counts("a") != "2 1 1" {
			t.Errorf("purged %+v, counters %q", p, r.counts("a"))
		}
		r.wantStates(map[string]int64{"scheduled1": isScheduled, "retrying1": isRetrying, "flying1": isInFlight, "moved": isCancelled})
		if p := r.purgeAll(purge{id: "s", flow: "nobody's"}); p.done != 0 || !p.own {
			t.Errorf("purged %+v", p)
		}
		if b := r.inspect(); b.unfinished != 3 || b.scheduled != 1 || b.purged != 13 {
			t.Errorf("bucket %+v", b)
		}
	})
}

// A full server settles, takes back, purges and redrives in flows as well.
func TestFlowsOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t)
	r.configureFlows(settings{dedupeMax: 50}, flowSettings{})
	var flying []placed
	for i := range 200 {
		r.place(placed{id: fmt.Sprint("w", i), flow: fmt.Sprint("f", i%7)})
		job := placed{id: fmt.Sprint("f", i), flow: fmt.Sprint("f", i%7), state: isInFlight, in: 60 * second}
		if i >= 100 {
			job.in = -1
		}
		r.place(job)
		flying = append(flying, job)
	}
	r.fill()
	for i, job := range flying[:100] {
		must.Equal(t, r.settle(outcome{lease: job.lease(), result: done + i%4})[0], 1, "%s was not settled", job.id)
	}
	if s := r.sweep(sweep{cursor: "0", flowCursor: "0"}); s.takenBack != 100 || s.repaired+s.missing != 0 {
		t.Errorf("swept %+v", s)
	}
	if got := r.redrive("f2", "f6"); fmt.Sprint(got) != "[1 1]" {
		t.Errorf("redriven %v", got)
	}
	r.controlFlow("f1", "pause", `{"by":"anna"}`)
	for i := range 7 {
		r.purgeAll(purge{id: fmt.Sprint("p", i), flow: fmt.Sprint("f", i)})
	}
	if b := r.inspect(); b.unfinished != 0 || b.flows != 0 || b.dead != 23 {
		t.Errorf("bucket %+v", b)
	}
}
