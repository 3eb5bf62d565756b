package scripts_test

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// names of flows that a script must not stumble over.
var oddFlows = []string{"a", "", "with space", "q:normal:x", `"quoted" \back`, "<b>&", "zwölf ☃", "line\nfeed", "}", "nul\x00"}

func TestFlowsOf(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		args := []any{1 << 20, 1}
		for i, flow := range oddFlows {
			r.place(placed{id: fmt.Sprint("j", i), flow: flow})
			args = append(args, fmt.Sprint("j", i))
		}
		r.hset("body", "unreadable", "no job of ours", "bare", "1 2 00000000000cn001 \n{\"f\":\"no\"}", "broken", `1 2 00000000000cn001 {"f":"a\`+"\nx")
		in := lua.NewReader(r.run(lua.FlowsOf, r.keys("body"), append(args, "unreadable", "bare", "broken", "nobody")...))
		for _, flow := range append(oddFlows[:len(oddFlows):len(oddFlows)], "", "", "", "") {
			must.Equal(t, in.Text(), flow, "flow")
		}
		r.ok(in.Err())
		// No more bodies are read than fit, and one in any case.
		for most, want := range map[int]int{1: 1, 200: 2, 1 << 20: 3} {
			must.Equal(t, lua.NewReader(r.run(lua.FlowsOf, r.keys("body"), most, 1, "j0", "j1", "j2")).Left(), want, "%d bytes at most: answers", most)
		}
	})
}

// Every outcome goes to its flow, and to the list of its priority there.
func TestSettleOfFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{})
		var outcomes []outcome
		add := func(p placed, result int) {
			p.state, p.in = isInFlight, 30*second
			r.place(p)
			outcomes = append(outcomes, outcome{lease: p.lease(), result: result, delay: 5 * second})
		}
		for i, flow := range oddFlows {
			id := func(name string) string { return fmt.Sprint(name, i) }
			r.place(placed{id: id("waits"), flow: flow, priority: 2})
			add(placed{id: id("done"), flow: flow}, done)
			add(placed{id: id("doneLate"), flow: flow, scheduled: true}, done)
			add(placed{id: id("dead"), flow: flow, scheduled: true}, dead)
			add(placed{id: id("retry"), flow: flow, scheduled: true}, retry)
			for priority := range 5 {
				add(placed{id: id(fmt.Sprint("r", priority, ".")), flow: flow, priority: priority}, returned)
			}
		}
		if got := r.counts("a"); got != "7 3 9" { // waits, done, five returned; doneLate, dead, retry
			t.Fatalf("counters %s before", got)
		}
		began := r.now()
		for i, settled := range r.settle(outcomes...) {
			must.Equal(t, settled, 1, "%s was not settled", outcomes[i].id)
		}
		for i, flow := range oddFlows {
			must.Equal(t, r.counts(flow), "6 1 0", "flow %q: counters", flow)
			want := fmt.Sprintf("[r1.%d] [r2.%d waits%d] [r0.%d r3.%d] [r4.%d] [retry%d]", i, i, i, i, i, i, i)
			if got := fmt.Sprintf("[%s] [%s] [%s] [%s] [%s]", r.list("critical", flow), r.list("high", flow), r.list("normal", flow),
				r.list("low", flow), r.laterOf(flow)); got != want {
				t.Errorf("flow %q: places %s, want %s", flow, got, want)
			}
			if turn := r.turn(flow); turn < began || turn > r.now() {
				t.Errorf("flow %q: its turn is in %d µs", flow, turn-began)
			}
		}
		if b := r.inspect(); b.inFlight != 0 || b.dead != int64(len(oddFlows)) || b.scheduled != int64(len(oddFlows)) ||
			b.waiting != 7*int64(len(oddFlows)) || b.flows != int64(len(oddFlows)) || b.onCalendar != b.flows || b.hasFlows != 1 {
			t.Errorf("bucket %+v", b)
		}
		for _, settled := range r.settle(outcomes...) {
			must.Equal(t, settled, 0, "settled twice")
		}
		must.Equal(t, r.counts("a"), "6 1 0", "sent twice: counters")
	})
}

// When a flow has its turn after a lease of it ended.
func TestSettleAndTheCalendar(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const soon, far = 10 * second, 100 * second
		held := placed{id: "j", flow: "f", state: isInFlight, in: 30 * second}
		waits := []placed{{id: "w", flow: "f"}}
		for name, c := range map[string]struct {
			all    flowSettings
			own    string
			others []placed
			slot   int64 // of the flow, from now on
			turn   int64 // before, from now on
			offset int64
			result int
			want   int64 // its turn from now on, without the offset; -1 none
			wakes  bool
		}{
			"nothing waits":                    {result: done, want: -1},
			"something waits":                  {others: waits, result: done, want: 0, wakes: true},
			"the clock of the calendar":        {others: waits, result: done, offset: 7 * second, want: 0, wakes: true},
			"something waits for its time":     {others: []placed{{id: "w", flow: "f", state: isScheduled, scheduled: true, in: soon}}, result: dead, want: soon, wakes: true},
			"in the turn queue already":        {others: waits, turn: soon, result: done, want: soon},
			"returned to others":               {others: waits, turn: soon, result: returned, want: soon},
			"returned to an empty list":        {turn: soon, result: returned, want: 0, wakes: true},
			"a retry":                          {result: retry, want: far, wakes: true},
			"a retry behind others":            {turn: soon, result: retry, want: soon},
			"a retry before others":            {turn: 2 * far, result: retry, want: far, wakes: true},
			"its rate":                         {all: flowSettings{rateCount: 1, ratePer: 4 * second}, slot: second / 10, others: waits, result: done, want: 4*second + second/10, wakes: true},
			"its own rate":                     {all: flowSettings{rateCount: 1, ratePer: 4 * second}, own: "1 2000000 - - - - -", slot: second / 10, others: waits, result: done, want: 2*second + second/10, wakes: true},
			"its burst":                        {all: flowSettings{rateCount: 1, ratePer: 4 * second, burst: 3}, slot: second, others: waits, result: done, want: 0, wakes: true},
			"as many in flight as may":         {all: flowSettings{inFlight: 1}, others: append(waits, placed{id: "x", flow: "f", state: isInFlight, in: soon}), result: done, want: -1},
			"a place in flight becomes free":   {all: flowSettings{inFlight: 1}, others: waits, result: done, want: 0, wakes: true},
			"its own bound":                    {all: flowSettings{inFlight: 5}, own: "- - - - 1 - -", others: append(waits, placed{id: "x", flow: "f", state: isInFlight, in: soon}), result: returned, want: -1},
			"paused":                           {own: "- - - - - - 17", others: waits, result: returned, want: -1},
			"another flow has its turn before": {others: append(waits, placed{id: "o", flow: "other"}), result: done, want: 0},
		} {
			r := r.fresh(t, "b"+fmt.Sprint(nextClaim()))
			r.configureFlows(settings{}, c.all)
			now := r.now()
			r.place(held)
			r.place(c.others...)
			if c.own != "" {
				r.own("f", c.own)
			}
			if c.offset != 0 {
				r.hset("pace", "offset", c.offset)
			}
			if c.slot != 0 {
				f := r.flow("f")
				f.slot, f.rate = now+c.offset+c.slot, fmt.Sprintf("%d/%d/%d", c.all.rateCount, cmp.Or(c.all.ratePer, second), now+c.offset+min(c.slot, second/10))
				r.hset("flows", "f", f.text())
			}
			if c.turn != 0 {
				r.setTurn("f", now+c.turn)
			}
			if r.counts("other") != "" {
				r.setTurn("other", now-1)
			}
			wakes := r.wakes(func() { r.settle(outcome{lease: held.lease(), result: c.result, delay: far}) })
			must.Equal(t, wakes, c.wakes, "%s: wakes", name)
			turn := r.turn("f")
			if c.want < 0 && turn != 0 || c.want >= 0 && (turn < now+c.want+c.offset || turn > r.now()+c.want+c.offset) {
				t.Errorf("%s: its turn is in %d µs", name, turn-now-c.offset)
			}
		}
	})
}

// Nothing is kept of a flow that has no jobs, once its pace says nothing any more.
func TestSettleForgetsIdleFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{}, flowSettings{rateCount: 1, ratePer: 10 * second})
		for name, slot := range map[string]int64{"rested": -11 * second, "paced": -9 * second} {
			job := placed{id: name, flow: name, state: isInFlight, in: second}
			r.place(job)
			f := r.flow(name)
			f.slot = r.now() + slot
			r.setState(name, f)
			r.settle(outcome{lease: job.lease(), result: done})
		}
		if rested, paced := r.counts("rested"), r.counts("paced"); rested != "" || paced != "0 0 0" {
			t.Errorf("counters %q and %q", rested, paced)
		}
		if s := r.sweep(sweep{flowCursor: "0"}); s.flowCursor != "0" || r.counts("paced") == "" {
			t.Errorf("swept %+v", s)
		}
		f := r.flow("paced")
		f.slot -= 2 * second
		r.setState("paced", f)
		if r.sweep(sweep{flowCursor: "0"}); r.counts("paced") != "" {
			t.Error("an idle flow is kept")
		}
		// Counters that somebody deleted begin anew, and never go below 0.
		job := placed{id: "j", flow: "f", state: isInFlight, in: second}
		r.place(job, placed{id: "w", flow: "f"})
		r.del("flows")
		r.settle(outcome{lease: job.lease(), result: done})
		must.Equal(t, r.counts("f"), "", "counters")
	})
}

// A bucket without flows keeps nothing of them; priorities have lists there, too.
func TestSettleWithoutFlows(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		var outcomes []outcome
		for priority := range 5 {
			for _, id := range []string{"a", "b"} {
				job := placed{id: fmt.Sprint(id, priority), priority: priority, state: isInFlight, in: second}
				r.place(job)
				outcomes = append(outcomes, outcome{lease: job.lease(), result: returned})
			}
		}
		if !r.wakes(func() { r.settle(outcomes...) }) {
			t.Error("nobody was woken")
		}
		if got := fmt.Sprintf("[%s] [%s] [%s] [%s]", r.list("critical", ""), r.list("high", ""), r.list("normal", ""), r.list("low", "")); got !=
			"[a1 b1] [a2 b2] [a0 b0 a3 b3] [a4 b4]" {
			t.Errorf("lists %s", got)
		}
		for i, want := range []int64{4, 0, 2, 6, 8} { // of a0, a1, …
			must.Equal(t, r.job(fmt.Sprint("a", i)).position, want, "a%d: position", i)
		}
		if b := r.inspect(); b.waiting != 10 || b.hasFlows != 0 || b.flows != 0 || b.onCalendar != 0 {
			t.Errorf("bucket %+v", b)
		}
		must.Equal(t, must.Get(r.c.Exists(r.ctx, r.key("flows"), r.key("due:"), r.key("flow_settings")).Result())(t), 0, "keys of flows")
		// Whoever believes that it has flows is told that it has none.
		job := placed{id: "j", flow: "f", state: isInFlight, in: second}
		r.place(job)
		keys := r.keysOf(lua.Settle, "f")
		if reply := r.run(lua.Settle, keys, "tundish:wake", r.name, 1, "", 1, "f", "j", 1, "c", returned, 0, "", 0, "-", 0, "", "", "", 0, "", "", job.mark(), 1); fmt.Sprint(reply) != "[1]" {
			t.Errorf("settle answered %v", reply)
		}
	})
}
